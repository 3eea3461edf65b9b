//! Every protocol under one roof: chosen by name, opened on any device, with the same operations.

use crate::cyclic::{Cycle, CyclicConfig, CyclicStore};
use crate::error::{FlashError, Result};
use crate::extended::{ExtendedConfig, ExtendedStore};
use crate::flag::{FlagConfig, FlagStore, Mode};
use crate::ftl::{Core, FtlConfig};
use crate::nand::{Geometry, Nand};
use crate::transact::{Rules, Transactions};
use crate::wal::{WalConfig, WalStore};
use crate::{Lba, Xid};

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Commit-based flag commit (3.1).
    Cfc,
    /// Abort-based flag commit (3.2).
    Afc,
    /// Simple cyclic commit (OSDI 2008).
    Scc,
    /// Back pointer cyclic commit (OSDI 2008).
    Bpcc,
    /// Write-ahead logging (ARIES).
    Wal,
    /// Extended CFC (4).
    CfcEx,
    /// Extended AFC (4).
    AfcEx,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Cfc, Self::Afc, Self::Scc, Self::Bpcc, Self::Wal, Self::CfcEx, Self::AfcEx];

    /// Those that lock records, log, and write pages whenever the buffer wants.
    pub fn is_no_force(self) -> bool {
        matches!(self, Self::Wal | Self::CfcEx | Self::AfcEx)
    }

    /// As the paper writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cfc => "CFC",
            Self::Afc => "AFC",
            Self::Scc => "SCC",
            Self::Bpcc => "BPCC",
            Self::Wal => "WAL",
            Self::CfcEx => "CFC_ex",
            Self::AfcEx => "AFC_ex",
        }
    }

    /// Reads what [`Protocol::name`] gives, in any case.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(name))
    }
}

/// How a store is opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The protocol.
    pub protocol: Protocol,
    /// The translation layer.
    pub ftl: FtlConfig,
    /// The corrections.
    pub rules: Rules,
    /// WAL and extended: logical pages in the store's own buffer.
    pub buffer_pages: usize,
    /// WAL and extended: log pages between two checkpoints.
    pub checkpoint_pages: u32,
    /// Extended: transactions that may have changes in one page at the same time.
    pub max_c: u8,
}

impl Config {
    /// The paper's settings with all corrections.
    pub fn new(protocol: Protocol) -> Self {
        let WalConfig { ftl, buffer_pages, checkpoint_pages } = WalConfig::new();
        Self { protocol, ftl, rules: Rules::corrected(), buffer_pages, checkpoint_pages, max_c: 3 }
    }

    /// The geometry with as much spare area and as many programs a page as the protocol needs at least.
    pub fn suitable(&self, geometry: Geometry) -> Geometry {
        if !matches!(self.protocol, Protocol::CfcEx | Protocol::AfcEx) {
            return geometry;
        }
        let (spare_bytes, programs) = ExtendedConfig::needs(self.max_c, geometry.page_bytes);
        Geometry {
            spare_bytes: geometry.spare_bytes.max(spare_bytes),
            programs_max: geometry.programs_max.max(programs),
            ..geometry
        }
    }
}

/// A store of any protocol.
#[derive(Clone, Debug)]
pub enum AnyStore<N> {
    /// CFC or AFC.
    Flag(FlagStore<N>),
    /// SCC or BPCC.
    Cyclic(CyclicStore<N>),
    /// WAL.
    Wal(WalStore<N>),
    /// CFC_ex or AFC_ex.
    Extended(ExtendedStore<N>),
}

macro_rules! each {
    ($store:expr, $inner:ident => $body:expr) => {
        match $store {
            AnyStore::Flag($inner) => $body,
            AnyStore::Cyclic($inner) => $body,
            AnyStore::Wal($inner) => $body,
            AnyStore::Extended($inner) => $body,
        }
    };
}

impl<N: Nand> AnyStore<N> {
    /// Mounts a device. An empty one becomes an empty store. A device written under one protocol must be opened under
    /// the same.
    ///
    /// # Errors
    /// [`FlashError::Geometry`], [`FlashError::Corrupt`], and those of the device.
    pub fn open(nand: N, config: Config) -> Result<Self> {
        let Config { protocol, ftl, rules, buffer_pages, checkpoint_pages, max_c } = config;
        let extended = |mode| ExtendedConfig { mode, ftl, buffer_pages, checkpoint_pages, max_c };
        let flag = |mode| FlagConfig { ftl, rules, ..FlagConfig::new(mode) };
        let cyclic = |cycle| CyclicConfig {
            cycle,
            ftl,
            erases_what_names_the_page: rules.uncommitted_names_are_erased,
            keeps_witnesses: rules.witnesses_are_kept,
        };
        Ok(match protocol {
            Protocol::Cfc => Self::Flag(FlagStore::open(nand, flag(Mode::Cfc))?),
            Protocol::Afc => Self::Flag(FlagStore::open(nand, flag(Mode::Afc))?),
            Protocol::Scc => Self::Cyclic(CyclicStore::open(nand, cyclic(Cycle::Scc))?),
            Protocol::Bpcc => Self::Cyclic(CyclicStore::open(nand, cyclic(Cycle::Bpcc))?),
            Protocol::Wal => Self::Wal(WalStore::open(nand, WalConfig { ftl, buffer_pages, checkpoint_pages })?),
            Protocol::CfcEx => Self::Extended(ExtendedStore::open(nand, extended(Mode::Cfc))?),
            Protocol::AfcEx => Self::Extended(ExtendedStore::open(nand, extended(Mode::Afc))?),
        })
    }

    /// The translation layer, for its counters.
    pub fn core(&self) -> &Core<N> {
        each!(self, store => store.core())
    }

    /// The translation layer, for its clock.
    pub fn core_mut(&mut self) -> &mut Core<N> {
        each!(self, store => store.core_mut())
    }

    /// Gives the device back. What is not on flash is lost.
    pub fn into_device(self) -> N {
        each!(self, store => store.into_device())
    }

    /// Bytes of memory that the protocol's tables take beside those of the layer.
    pub fn table_bytes(&self) -> u64 {
        each!(self, store => store.table_bytes())
    }

    /// Changes bytes of a page in which others may be changing other bytes: for the protocols with record-level
    /// concurrency.
    ///
    /// # Errors
    /// [`FlashError::RecordsUnsupported`] for the others, and those of [`WalStore::update`] and
    /// [`ExtendedStore::update`].
    pub fn update(&mut self, txn: Xid, lba: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Wal(store) => store.update(txn, lba, offset, bytes),
            Self::Extended(store) => store.update(txn, lba, offset, bytes),
            Self::Flag(_) | Self::Cyclic(_) => Err(FlashError::RecordsUnsupported),
        }
    }

    /// Loads pages that nobody has written or read yet, each with its own number. As where a database is loaded,
    /// nothing of it goes through a log. Dead log pages would lie among the data for ever, and take room that garbage
    /// collection then lacks.
    ///
    /// # Errors
    /// As [`Transactions::write`].
    pub(crate) fn load(&mut self, lbas: std::ops::Range<Lba>) -> Result<()> {
        let data = |lba: Lba| u64::from(lba).to_le_bytes();
        match self {
            Self::Wal(store) => lbas.into_iter().try_for_each(|lba| store.load_page(lba, &data(lba))),
            Self::Extended(store) => lbas.into_iter().try_for_each(|lba| store.load_page(lba, &data(lba))),
            Self::Flag(_) | Self::Cyclic(_) => {
                let txn = self.begin();
                for lba in lbas {
                    self.write(txn, lba, &data(lba))?;
                }
                self.commit(txn)
            }
        }
    }

    /// Log pages written since the store was opened.
    pub fn log_pages(&self) -> u64 {
        match self {
            Self::Wal(store) => store.log_pages(),
            Self::Extended(store) => store.log_pages(),
            Self::Flag(_) | Self::Cyclic(_) => 0,
        }
    }

    /// Bytes of the records in these pages.
    pub fn log_bytes(&self) -> u64 {
        match self {
            Self::Wal(store) => store.log_bytes(),
            Self::Extended(store) => store.log_bytes(),
            Self::Flag(_) | Self::Cyclic(_) => 0,
        }
    }

    /// Collects one block now, even if space is not short. Experiments use it.
    ///
    /// # Errors
    /// Those of the device.
    pub fn collect_block(&mut self, block: u32) -> Result<()> {
        each!(self, store => store.collect_block(block))
    }
}

impl<N: Nand> Transactions for AnyStore<N> {
    fn begin(&mut self) -> Xid {
        each!(self, store => store.begin())
    }

    fn read(&mut self, txn: Option<Xid>, lba: Lba, data: &mut [u8]) -> Result<()> {
        each!(self, store => store.read(txn, lba, data))
    }

    fn write(&mut self, txn: Xid, lba: Lba, data: &[u8]) -> Result<()> {
        each!(self, store => store.write(txn, lba, data))
    }

    fn commit_with(&mut self, txn: Xid, last: &[(Lba, &[u8])]) -> Result<()> {
        each!(self, store => store.commit_with(txn, last))
    }

    fn abort(&mut self, txn: Xid) -> Result<()> {
        each!(self, store => store.abort(txn))
    }

    fn page_count(&self) -> u32 {
        each!(self, store => store.page_count())
    }

    fn page_bytes(&self) -> usize {
        each!(self, store => store.page_bytes())
    }
}

/// Reads a protocol's name.
///
/// # Errors
/// [`FlashError::UnknownProtocol`].
pub fn parse(name: &str) -> Result<Protocol> {
    Protocol::by_name(name).ok_or_else(|| FlashError::UnknownProtocol(name.to_string()))
}

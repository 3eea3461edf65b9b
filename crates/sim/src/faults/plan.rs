//! Which call is harmed, how, and how the life ends.

use ledgerstone_disk::{Call, DiskErrorKind, Fault, Harm};

use crate::crash::plan::{Life, Plan, Wishes};
use ledgerstone_region::Random;

const EIO: DiskErrorKind = DiskErrorKind::Io(5);

/// One round: a life with a fault, and a look at what it left.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    /// Settings, what is there at the beginning, and the clients: the first life of a plan of the crash harness that
    /// has any.
    pub plan: Plan,
    /// What goes wrong.
    pub fault: Fault,
    /// Instead of the fault: the device stalls, and does everything in the end.
    pub stall: Option<Stall>,
    /// Calls count from before the opening on; otherwise from after it.
    pub in_open: bool,
    /// How the life with the fault ends.
    pub ending: Ending,
    /// The first opening after that meets this one, which is a read gone wrong, and is killed.
    pub misread: Option<Fault>,
}

/// A device that answers nothing for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// From this call on, of any kind.
    pub nth: u64,
    /// For so long, in nanoseconds: longer than a frame of the cache is waited for.
    pub ns: u64,
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is closed, as far as the fault lets it.
    Close,
    /// The process is killed: all that it wrote is there.
    Kill,
    /// The power fails.
    PowerLoss,
}

/// What has to hold afterwards (F1 to F4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Everything.
    Kept,
    /// Right or `Corrupt`.
    RightOrCorrupt,
    /// A prefix of the commits, or `Corrupt`.
    PrefixOrCorrupt,
    /// An answer.
    Answers,
}

impl FaultPlan {
    /// The plan of a seed. On a raw store, the device is what fails: it has neither names nor lengths.
    pub fn new(seed: u64, is_raw: bool) -> FaultPlan {
        let mut plan = Plan::new(seed, Wishes { no_space_trouble: true, is_raw, ..Wishes::default() });
        let mut random = Random::new(seed ^ 0x0fa1_75ed_fa17_5eed);
        plan.lives.retain(|life| !life.clients.is_empty());
        plan.lives.truncate(1);
        if let Some(life) = plan.lives.first_mut() {
            *life = Life { crash_in_open: None, crash_after: None, space_bytes: None, ..life.clone() };
        }
        let fault = draw_fault(&mut random);
        let fault = if is_raw { of_device(fault) } else { fault };
        let may_lose_power = fault.harm != Harm::Lie;
        let ending = match random.below(3) {
            0 => Ending::Close,
            1 if may_lose_power => Ending::PowerLoss,
            _ => Ending::Kill,
        };
        let in_open = random.percent(30);
        let stall = random.percent(12).then(|| Stall { nth: 1 + random.below(2000), ns: 20_000_000_000 });
        let misread = random.percent(40).then(|| {
            let most = 1 << random.between(1, 6);
            let nth = 1 + random.below(most);
            let path = if is_raw { "" } else { random.pick(&["log", "log", "data", ""]) };
            Fault::at(Call::Read, nth, Harm::FlipBit(random.number())).on(path)
        });
        FaultPlan { plan, fault, stall, in_open, ending, misread }
    }

    /// What has to hold afterwards.
    pub fn promise(&self) -> Promise {
        let is_write = self.fault.call == Call::Write;
        let may_hit_log = self.fault.path.is_empty() || self.fault.path == "log";
        match self.fault.harm {
            _ if self.stall.is_some() => Promise::Kept,
            Harm::FlipBit(_) if is_write && may_hit_log => Promise::PrefixOrCorrupt,
            Harm::FlipBit(_) if is_write => Promise::RightOrCorrupt,
            Harm::Misdirect(_) => Promise::Answers,
            _ => Promise::Kept,
        }
    }
}

fn of_device(fault: Fault) -> Fault {
    let call = match fault.call {
        Call::Allocate | Call::Open | Call::Name => Call::Write,
        Call::SyncDir => Call::Sync,
        call => call,
    };
    Fault { call, path: String::new(), ..fault }
}

fn draw_fault(random: &mut Random) -> Fault {
    let calls = [Call::Read, Call::Write, Call::Sync, Call::Allocate, Call::Open, Call::Name, Call::SyncDir, Call::Any];
    let call = calls[random.weighted(&[22, 40, 16, 6, 4, 4, 4, 4])];
    let no_space = Harm::Fail(DiskErrorKind::NoSpace);
    let harm = match call {
        Call::Read => random.pick(&[Harm::Fail(EIO), Harm::Short, Harm::FlipBit(0)]),
        Call::Write => random.pick(&[
            Harm::Fail(EIO),
            no_space,
            Harm::Short,
            Harm::FlipBit(0),
            Harm::FlipBit(0),
            Harm::Misdirect(0),
        ]),
        Call::Sync => random.pick(&[Harm::Fail(EIO), Harm::Lie]),
        Call::Allocate | Call::Open | Call::Name => random.pick(&[Harm::Fail(EIO), no_space]),
        _ => Harm::Fail(EIO),
    };
    let harm = match harm {
        Harm::FlipBit(_) => Harm::FlipBit(random.number()),
        Harm::Misdirect(_) => Harm::Misdirect(random.pick(&[512, 4096, 8192, 65_536])),
        other => other,
    };
    let harm = if random.percent(8) { Harm::Panic } else { harm };
    // Small numbers as likely as large ones: the first calls are those that few tests reach.
    let bits = random.between(1, 9);
    let nth = 1 + random.below(1 << bits);
    let path = random.pick(&["", "", "log", "data", "double_write", "control"]);
    let fault = Fault::at(call, nth, harm).on(path);
    let may_last = matches!(harm, Harm::Fail(_) | Harm::Short | Harm::Lie | Harm::Panic);
    if may_last && random.percent(25) { fault.from_then_on() } else { fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan_and_a_lie_never_meets_a_power_loss() {
        for seed in 0..500 {
            let plan = FaultPlan::new(seed, false);
            assert_eq!(format!("{plan:?}"), format!("{:?}", FaultPlan::new(seed, false)));
            assert!(plan.fault.harm != Harm::Lie || plan.ending != Ending::PowerLoss);
            assert!(plan.plan.lives.len() == 1, "seed {seed} has no life with clients");
        }
    }
}

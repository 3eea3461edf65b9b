//! Verification: every page's checksum, every structure's invariants, each index against its table, and that each page
//! in use is used exactly once.
//!
//! Tables are locked for reading while they are verified, all at once, so that what is counted stands still. What a
//! transaction in doubt keeps locked is not waited for, since nobody knows for how long: it is left out, and the report
//! says so. Checksums need no locks, nor does what a page says by itself: those are verified of every page.

use ledgerstone_region::NumberSet;
use std::ops::{Bound, ControlFlow};

use ledgerstone_buffer::BufferError;
use ledgerstone_lock::Mode;
use ledgerstone_page::{Corrupt, PageId, PageSet, TableId, header};
use ledgerstone_structures::{Direction, Read, Tree, TreeError, TreeReport};
use ledgerstone_txn::{Engine, Txn, UsersCode, run_users_code};

use crate::catalog::{Definition, Entry, TableInfo};
use crate::catalog::{StructureId, unknown};
use crate::flow::{Flow, go_on};
use crate::inner::Inner;
use crate::{Environment, Error};

const CATALOG: &str = "catalog";
const DEFERRED_FREES: &str = "deferred frees";

/// How far a verification is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Pages that were examined. Each page in use is examined twice: as a part of its table or index, and by itself.
    pub done: u64,
    /// Pages to examine in all. 0 if the number is not known, because the space maps are damaged.
    pub total: u64,
    /// What is being verified. While an index is compared with its table, `done` does not grow.
    pub what: String,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Problem {
    /// The table, or the part of the environment.
    pub place: String,
    /// The page, if one is to blame.
    pub page: Option<u64>,
    /// What is wrong with it.
    pub what: String,
    /// What repairs it, if anything does.
    pub mend: Option<String>,
}

/// Something that was not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Skipped {
    /// The table, or the part of the environment.
    pub place: String,
    /// Why not, and what to do about it.
    pub why: String,
}

/// What a verification found.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables verified.
    pub table_count: u64,
    /// Indexes verified.
    pub index_count: u64,
    /// Indexes whose function is not registered here, so that only entries without a record would be seen.
    pub unchecked_indexes: Vec<String>,
    /// Records in the tables.
    pub record_count: u64,
    /// Users' structures verified.
    pub structure_count: u64,
    /// Deleted records that are still keys.
    pub ghost_count: u64,
    /// Large values.
    pub blob_count: u64,
    /// Pages in use.
    pub page_count: u64,
    /// Pages that wait to be freed.
    pub to_free_page_count: u64,
    /// The problems. Empty if there are none.
    pub problems: Vec<Problem>,
    /// What was left out, because transactions in doubt keep it locked. Empty if everything was verified.
    pub skipped: Vec<Skipped>,
}

impl Environment {
    /// Verifies the whole environment: checksums, structures, indexes against their tables, reachability, and space.
    /// Writers wait meanwhile.
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// Conflicts. Damage is not an error here, but is in the report.
    pub fn verify(&self) -> Result<VerifyReport, Error> {
        self.verify_with(|_| ())
    }

    /// The same. `progress` is called before each table and index, and repeatedly in large ones. It may end the
    /// verification ([`Flow`]).
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::verify`], and [`Error::Cancelled`].
    pub fn verify_with<F: Flow>(&self, mut progress: impl FnMut(VerifyProgress) -> F) -> Result<VerifyReport, Error> {
        self.inner().engine.in_a_call(|| self.verify_by(&mut |at| progress(at).flow()))
    }

    fn verify_by(&self, progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>) -> Result<VerifyReport, Error> {
        let env = self.inner();
        let mut txn = env.begin()?;
        // Whose progress is told, and whose functions are called.
        let _inside = UsersCode::of(&env.engine, txn.owner(), txn.xid());
        let mut report = VerifyReport::default();
        let mut used = PageSet::default();

        let catalog = env.catalog();
        let is_catalog_locked = lock(env, &mut txn, &mut report, CATALOG, catalog.table())?;
        let scan_catalog = || match is_catalog_locked {
            true => catalog.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward),
            false => catalog.scan_unlocked(Bound::Unbounded, Bound::Unbounded, Direction::Forward),
        };
        // All are locked before anything is counted. What they are is read again table by table, as there may be very
        // many.
        let mut locked: NumberSet<TableId> = NumberSet::new();
        let mut structures = Vec::new();
        let mut scan = scan_catalog();
        while let Some((key, value)) = scan.next(&mut txn)? {
            let (key, value) = (key.to_vec(), value.to_vec());
            let name = String::from_utf8_lossy(&key).into_owned();
            let structure = Entry::structure_of(&value).is_some();
            let (number, definition) = if structure {
                let (number, entry) = Entry::decode_structure(&name, &value)?;
                (number, Definition::from(entry))
            } else {
                (0, Definition::decode(&name, &value)?)
            };
            if !lock(env, &mut txn, &mut report, &name, definition.entry.table)? {
                continue;
            }
            // Read without a lock, it may have been of a transaction that has come to nothing.
            if !is_catalog_locked && catalog.get(&mut txn, &key, Read::Unlocked)?.as_ref() != Some(&value) {
                continue;
            }
            if structure {
                structures.push(((number, definition.entry), name));
                continue;
            }
            locked.insert(definition.entry.table);
            for index in &definition.indexes {
                if lock(env, &mut txn, &mut report, &index.place(&name), index.entry.table)? {
                    locked.insert(index.entry.table);
                }
            }
        }
        // Last: a transaction that frees pages locks this after tables, and never tables after this.
        let to_free = env.to_free().tree();
        let is_to_free_locked = lock(env, &mut txn, &mut report, DEFERRED_FREES, to_free.table())?;

        let page_count = env.space.allocated_pages().map_or(0, |pages| pages.len()); // Damage is told further below.
        let (what, engine) = (String::new(), &*env.engine);
        let mut steps = Steps { done: 0, total: 2 * page_count, what, record_count: 0, engine, progress };
        // Where damage hides which pages belong to what.
        let mut partial: Vec<String> = Vec::new();
        let mut check = |report: &mut VerifyReport, steps: &mut Steps<'_>, name: &str, tree: &Tree| {
            steps.begin(name)?;
            Ok::<_, Error>(match tree.check_with(&mut || steps.page()) {
                Ok(found) => {
                    let record_count = found.record_count;
                    partial.extend(found.is_partial.then(|| name.to_string()));
                    add(env, report, &mut used, name, found);
                    Some(record_count)
                }
                Err(TreeError::Stopped) => return Err(Error::Cancelled),
                Err(error) => {
                    partial.push(name.to_string());
                    report.problems.push(problem(name, &error.into()));
                    None
                }
            })
        };
        if is_catalog_locked {
            check(&mut report, &mut steps, CATALOG, catalog)?;
        }
        let mut uncompared = Vec::new();
        let mut scan = scan_catalog();
        while let Some((key, value)) = scan.next(&mut txn)? {
            let (name, value) = (String::from_utf8_lossy(key).into_owned(), value.to_vec());
            if Entry::structure_of(&value).is_some() {
                continue;
            }
            let info = env.table_info(&name, Definition::decode(&name, &value)?);
            if !locked.contains(info.entry.table) {
                continue;
            }
            if let Some(record_count) = check(&mut report, &mut steps, &name, &info.tree)? {
                report.table_count += 1;
                report.index_count += info.indexes.len() as u64;
                report.record_count += record_count;
            }
            for index in info.indexes.iter().filter(|index| locked.contains(index.entry.entry.table)) {
                let place = index.place(&name);
                check(&mut report, &mut steps, &place, &index.tree)?;
            }
            verify_indexes(&mut txn, &mut report, &info, &mut steps, &mut uncompared)?;
        }
        if is_to_free_locked {
            check(&mut report, &mut steps, DEFERRED_FREES, to_free)?;
        }
        for ((structure, entry), name) in &structures {
            if let Err(Unknown { error, is_partial }) =
                self.verify_structure(&mut report, &mut used, name, StructureId(*structure), entry.root)
            {
                partial.extend(is_partial.then(|| name.clone()));
                uncompared.push(problem(name, &error));
            }
        }
        steps.done = page_count; // Also if something was left out, or has pages besides its nodes.
        steps.begin("pages")?;
        if is_to_free_locked {
            match env.to_free().pages(&mut txn) {
                Ok(pages) => {
                    report.to_free_page_count = pages.len();
                    claim(&mut report, &mut used, DEFERRED_FREES, &pages);
                }
                Err(error) => {
                    partial.push(DEFERRED_FREES.into());
                    report.problems.push(problem(DEFERRED_FREES, &error.into()));
                }
            }
        }
        self.verify_pages(&mut report, &mut used, &partial, &mut steps)?;
        // A page of a value that cannot be read has been told by now.
        let has_damage = report.problems.iter().any(|problem| problem.page.is_some());
        for unknown in uncompared {
            if has_damage {
                let why = format!("damage ended its check: {}", unknown.what);
                report.skipped.push(Skipped { place: unknown.place, why });
            } else {
                report.problems.push(unknown);
            }
        }
        if let Some(slot) = env.control.look_for_damage()? {
            let what =
                format!("slot {slot} is damaged; the other one is whole, and the next checkpoint makes both whole");
            report.problems.push(Problem { place: "control".into(), page: None, what, mend: None });
        }
        for problem in &mut report.problems {
            problem.mend = problem.mend.take().or_else(|| mend(problem));
        }
        txn.commit(ledgerstone_txn::Durability::Volatile)?;
        Ok(report)
    }

    /// A user's structure: its pages by their layouts, and the whole by its own check.
    fn verify_structure(
        &self,
        report: &mut VerifyReport,
        used: &mut PageSet,
        name: &str,
        structure: StructureId,
        root: PageId,
    ) -> Result<(), Unknown> {
        let env = self.inner();
        let Some(kind) = env.program.extensions.get(structure) else {
            return Err(Unknown { error: unknown(name, structure), is_partial: true });
        };
        report.structure_count += 1;
        let mut unknown = None;
        let pages = run_users_code(&env.engine, || kind.pages(&env.engine, root)).unwrap_or_else(|error| {
            unknown = Some(error);
            vec![root]
        });
        for &page in &pages {
            let wrong = match env.engine.cache.shared(page) {
                Ok(latched) => {
                    env.program.layouts.check(latched.words()).err().map(|corrupt| damaged(env, page, &corrupt))
                }
                Err(error) => Some(unreadable(env, page, &error)),
            };
            report.problems.extend(wrong.map(|what| Problem {
                place: name.to_string(),
                page: Some(page.0),
                what,
                mend: None,
            }));
        }
        claim(report, used, name, &pages.into_iter().collect());
        if let Some(error) = unknown {
            return Err(Unknown { error: error.into(), is_partial: true });
        }
        let wrong = run_users_code(&env.engine, || kind.check(&env.engine, root));
        let wrong = wrong.map_err(|error| Unknown { error: error.into(), is_partial: false })?;
        let of = |what| Problem { place: name.to_string(), page: None, what, mend: None };
        report.problems.extend(wrong.into_iter().map(of));
        Ok(())
    }

    /// Checksums of all pages in use, and that exactly those are in use that something refers to. `partial`: what does
    /// not say all that it refers to, because it is damaged. Each damaged page is a problem once.
    fn verify_pages(
        &self,
        report: &mut VerifyReport,
        used: &mut PageSet,
        partial: &[String],
        steps: &mut Steps<'_>,
    ) -> Result<(), Error> {
        let env = self.inner();
        let allocated = match env.space.allocated_pages() {
            Ok(pages) => pages,
            Err(error) => {
                report.problems.push(problem("space maps", &error.into()));
                return Ok(());
            }
        };
        report.page_count = allocated.len();
        let page_bytes = env.engine.cache.page_bytes();
        // Of what was left out, at least each page by itself is looked at.
        let is_all_claimed = report.skipped.is_empty();
        if !is_all_claimed {
            let why = "pages that nothing refers to cannot be told while other parts are left out".to_string();
            report.skipped.push(Skipped { place: "space maps".into(), why });
        }
        if is_all_claimed && !partial.is_empty() {
            let why =
                format!("pages that nothing refers to cannot be told while there is damage in {}", partial.join(", "));
            report.skipped.push(Skipped { place: "space maps".into(), why });
        }
        let is_told: NumberSet<u64> = report.problems.iter().filter_map(|problem| problem.page).collect();
        for page in allocated.iter() {
            go_on(steps.page())?;
            // A page in the cache was verified when it came in, and is sealed anew when it goes out.
            let is_ours = page.0 == 0 || ledgerstone_space::map_of(page, page_bytes) == page;
            let wrong = match env.engine.cache.shared(page) {
                Err(error) => Some(unreadable(env, page, &error)),
                Ok(latched) if !is_all_claimed && !is_ours && !used.contains(page) => {
                    let is_known = env.program.layouts.get(header::layout(latched.words())).is_some();
                    let wrong = if is_known { env.program.layouts.check(latched.words()).err() } else { None };
                    wrong.map(|corrupt| damaged(env, page, &corrupt))
                }
                Ok(_) => None,
            };
            let place = || "data file".to_string();
            let wrong = wrong.filter(|_| !is_told.contains(page.0));
            report.problems.extend(wrong.map(|what| Problem { place: place(), page: Some(page.0), what, mend: None }));
            if !used.remove(page) && !is_ours && is_all_claimed && partial.is_empty() {
                let what = "in use, but nothing refers to it".to_string();
                report.problems.push(Problem { place: "space maps".into(), page: Some(page.0), what, mend: None });
            }
        }
        for page in std::mem::take(used).iter() {
            let what = "referred to, but marked as free".to_string();
            report.problems.push(Problem { place: "space maps".into(), page: Some(page.0), what, mend: None });
        }
        Ok(())
    }
}

/// What a user's structure could not say of itself, because of damage or of a disk.
struct Unknown {
    error: Error,
    /// Which pages it has is not known, either.
    is_partial: bool,
}

/// Locks a table for reading. False, with a line in the report, if a transaction in doubt keeps it, or one that is
/// rolled back since the restart.
fn lock(env: &Inner, txn: &mut Txn, report: &mut VerifyReport, place: &str, table: TableId) -> Result<bool, Error> {
    let kept = || "keeps it locked; its pages are verified, but not how they belong together";
    let in_doubt = env.in_doubt.holder_of(table);
    let in_doubt = in_doubt.map(|id| format!("transaction {id} is in doubt and {}: commit or abort it first", kept()));
    let why = in_doubt.or_else(|| {
        let xid = env.rollbacks.holder_of(table)?;
        Some(format!("transaction {xid} is being rolled back since the restart and {}: wait for that first", kept()))
    });
    let Some(why) = why else {
        txn.lock_table(table, Mode::S)?;
        return Ok(true);
    };
    if txn.try_lock_table(table, Mode::S)? {
        return Ok(true);
    }
    report.skipped.push(Skipped { place: place.to_string(), why });
    Ok(false)
}

fn add(env: &Inner, report: &mut VerifyReport, used: &mut PageSet, name: &str, found: TreeReport) {
    report.ghost_count += found.ghost_count;
    report.blob_count += found.blob_count;
    for corrupt in &found.problems {
        let page = corrupt.page.map(|p| p.0);
        let what = corrupt.page.map_or_else(|| corrupt.to_string(), |page| damaged(env, page, corrupt));
        report.problems.push(Problem { place: name.to_string(), page, what, mend: None });
    }
    claim(report, used, name, &found.pages);
}

/// What is wrong with a page that the problem names, and where it is.
fn damaged(env: &Inner, page: PageId, corrupt: &Corrupt) -> String {
    let (file, at) = env.engine.cache.place_of(page);
    format!("in {file} at byte {at}: {}", corrupt.fact())
}

/// Why a page that the problem names cannot be read.
fn unreadable(env: &Inner, page: PageId, error: &BufferError) -> String {
    match error {
        BufferError::Damaged { corrupt, .. } => damaged(env, page, corrupt),
        BufferError::NeverWritten { .. } => damaged(env, page, &Corrupt::new(Corrupt::NEVER_WRITTEN, 0, 0, 0)),
        other => other.to_string(),
    }
}

fn claim(report: &mut VerifyReport, used: &mut PageSet, name: &str, pages: &PageSet) {
    for page in pages.iter() {
        if !used.insert(page) {
            let what = "used by two structures".to_string();
            report.problems.push(Problem { place: name.to_string(), page: Some(page.0), what, mend: None });
        }
    }
}

/// Each index with its table, both ways; unless their trees are damaged. Adds those where an error ended it to
/// `uncompared`.
fn verify_indexes(
    txn: &mut Txn,
    report: &mut VerifyReport,
    info: &TableInfo,
    steps: &mut Steps<'_>,
    uncompared: &mut Vec<Problem>,
) -> Result<(), Error> {
    for index in &info.indexes {
        let place = index.place(&info.name);
        let make_anew = || {
            let (table, index) = (&info.name, index.name());
            format!("drop the index and create it anew: ledgerstone index drop DIR {table} {index}, then index create")
        };
        steps.begin(&format!("{place}, beside its table"))?;
        let is_damaged = report.problems.iter().any(|found| found.place == place || found.place == info.name);
        if !is_damaged && !report.skipped.iter().any(|skipped| skipped.place == place) {
            let mut problems = Vec::new();
            let mut differ = |what| problems.push(Problem { place: place.clone(), page: None, what, mend: None });
            match info.compare_with(txn, index, &mut differ, &mut || go_on(steps.record())) {
                Ok(true) => {}
                Ok(false) => report.unchecked_indexes.push(place.clone()),
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(error) => {
                    let mut unknown = problem(&place, &error);
                    unknown.mend.get_or_insert_with(make_anew);
                    uncompared.push(unknown);
                }
            }
            report.problems.append(&mut problems);
        }
        for problem in report.problems.iter_mut().filter(|problem| problem.place == place) {
            problem.mend.get_or_insert_with(make_anew);
        }
    }
    Ok(())
}

/// How many pages or records go by between two calls of the progress callback.
const PAGES_BETWEEN: u64 = 64;
const RECORDS_BETWEEN: u64 = 1024;

/// Tells what is verified, and hears whether to go on.
struct Steps<'p> {
    done: u64,
    total: u64,
    what: String,
    /// Of indexes and their tables, compared.
    record_count: u64,
    engine: &'p Engine,
    progress: &'p mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
}

impl Steps<'_> {
    fn begin(&mut self, what: &str) -> Result<(), Error> {
        what.clone_into(&mut self.what);
        go_on(self.tell())
    }

    fn page(&mut self) -> ControlFlow<()> {
        self.done += 1;
        if self.done.is_multiple_of(PAGES_BETWEEN) { self.tell() } else { ControlFlow::Continue(()) }
    }

    fn record(&mut self) -> ControlFlow<()> {
        self.record_count += 1;
        if self.record_count.is_multiple_of(RECORDS_BETWEEN) { self.tell() } else { ControlFlow::Continue(()) }
    }

    fn tell(&mut self) -> ControlFlow<()> {
        let now = VerifyProgress { done: self.done, total: self.total, what: self.what.clone() };
        run_users_code(self.engine, || (self.progress)(now))
    }
}

/// What to do about a problem that is not one of an index.
fn mend(problem: &Problem) -> Option<String> {
    match problem.page {
        Some(page) => Some(format!("ledgerstone repair DIR --from BACKUP --page {page}, or restore from a backup")),
        None if problem.place == "control" => Some("ledgerstone checkpoint DIR".into()),
        None => None,
    }
}

/// What an error that ended a check says, and what to do if it is not of what was checked.
fn problem(place: &str, error: &Error) -> Problem {
    let mend = match error {
        Error::Disk(_) => {
            Some("ledgerstone verify DIR, again; if the disk refuses again, restore from a backup to another one")
        }
        _ if error.is_retryable() => Some("ledgerstone verify DIR, again"),
        _ => None,
    };
    Problem { place: place.to_string(), page: None, what: error.to_string(), mend: mend.map(str::to_string) }
}

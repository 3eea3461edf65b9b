//! The same reads and updates as the table grows by tens.

use super::{Bench, add_one, fill, read_one};
use crate::measure::{Figure, Moment, Operation, Random};
use crate::peer::Durability;

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    for &count in bench.choose(&[10_000, 100_000, 1_000_000][..], &[100_000, 1_000_000, 10_000_000]) {
        let (peer, dir) = bench.open("growth")?;
        let before = Moment::now(&[]);
        fill(&*peer, count, 100)?;
        let mut figure = Figure::plain(format!("load, {count} records"), count as f64 / before.seconds(), "1/s", true);
        before.tell(&[], count, &mut figure);
        bench.add(figure);
        let reads = |thread_no| -> Operation<'_> {
            let (mut random, mut value) = (Random::new(thread_no), Vec::new());
            Box::new(move |worker| read_one(worker, random.below(count), &mut value).map(|()| (1, 0)))
        };
        bench.crowd(&*peer, Durability::None, 1, &format!("reads, {count} records"), &reads)?;
        let updates = |thread_no| -> Operation<'_> {
            let mut random = Random::new(thread_no);
            Box::new(move |worker| Ok((1, add_one(worker, random.below(count))?)))
        };
        bench.crowd(&*peer, Durability::None, 1, &format!("updates, {count} records"), &updates)?;
        peer.close()?;
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

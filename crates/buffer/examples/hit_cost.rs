//! What a hit costs: `cargo run --release -p ledgerstone-buffer --example hit_cost`
//!
//! Pages that are all in memory, asked for in random order: optimistic read of one word with check, shared latch,
//! exclusive latch. One thread; the loop's own cost is measured and shown apart.

#[cfg(not(loom))]
mod hit_cost {
    use ledgerstone_buffer::{Cache, CacheConfig, Policy, WriteAhead};
    use ledgerstone_disk::{Disk, Open, SimDisk};
    use ledgerstone_log::LogError;
    use ledgerstone_page::{LayoutId, Lsn, PageId, header};
    use ledgerstone_region::{Region, SlotTable, sync};
    use std::hint::black_box;
    use std::sync::Arc;

    struct NoLog;

    impl WriteAhead for NoLog {
        fn tail(&self) -> Lsn {
            Lsn(8192)
        }
        fn durable_lsn(&self) -> Lsn {
            Lsn(8192)
        }
        fn flush_to(&self, _: Lsn) -> Result<(), LogError> {
            Ok(())
        }
    }

    fn measure(name: &str, pages: u64, mut one: impl FnMut(PageId)) {
        const ROUNDS: u64 = 5_000_000;
        let mut best = f64::MAX;
        for _ in 0..5 {
            let mut x = 1u64;
            let began = sync::now_ns();
            for _ in 0..ROUNDS {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                one(PageId(1 + ((u128::from(x) * u128::from(pages)) >> 64) as u64));
            }
            best = best.min((sync::now_ns() - began) as f64 / ROUNDS as f64);
        }
        println!("{name:<44} {best:6.1} ns");
    }

    pub(crate) fn run() -> Result<(), Box<dyn std::error::Error>> {
        let disk = SimDisk::new();
        let region = Region::anonymous(4 << 30)?;
        let cache = Cache::new(CacheConfig {
            slots: Arc::new(SlotTable::place(&region, 64)?),
            region,
            data: disk.open("data", Open::CREATE)?,
            double_write: disk.open("double-write", Open::CREATE)?,
            log: Arc::new(NoLog),
            page_bytes: 8192,
            cache_bytes: 300 << 20,
            max_pages: 1 << 20,
            policy: Policy::Clock,
        })?;
        for id in 1..=30_000 {
            let mut page = cache.exclusive_new(PageId(id))?;
            page.begin_change(Lsn(4096));
            header::format(&mut page.page_mut(), PageId(id), LayoutId::RAW, 0, PageId::NONE);
            page.finish_change(Lsn(4096));
        }
        for (pages, where_) in [(64, "64 pages"), (30_000, "30,000 pages")] {
            measure(&format!("loop alone, {where_}"), pages, |id| {
                black_box(id);
            });
            measure(&format!("optimistic + check, {where_}"), pages, |id| {
                let page = cache.optimistic(id).unwrap();
                black_box(page.check().is_ok());
            });
            measure(&format!("optimistic + one word + check, {where_}"), pages, |id| {
                let page = cache.optimistic(id).unwrap();
                black_box(page.words().u64(header::PAGE_ID));
                black_box(page.check().is_ok());
            });
            measure(&format!("shared, {where_}"), pages, |id| {
                black_box(cache.shared(id).unwrap().page_lsn());
            });
            measure(&format!("exclusive, {where_}"), pages, |id| {
                black_box(cache.exclusive(id).unwrap().page_lsn());
            });
        }
        Ok(())
    }
}

fn main() {
    #[cfg(not(loom))]
    hit_cost::run().expect("a cache of 300 MiB");
}

//! The experiments of paper 002 on this machine: `cargo bench -p ledgerstone-port --bench ports -- [EXPERIMENT...]`.
//!
//! Each experiment runs this crate and the other mechanisms one after the other, in processes of their own. With
//! `--features peers` iceoryx2 takes part, with `AERON_JAR` Aeron. Results go to standard output as a table and, with
//! `--out DIR`, as lines of `name,x,value` that `--plot DIR` makes plots from.

mod aeron;
mod echo;
mod mechanisms;
mod multicast;
mod plot;
mod process;
mod raid;
mod rings;
mod send;
mod stream;

use std::path::PathBuf;

/// One number of an experiment.
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// For which size or count.
    pub x: f64,
    /// Microseconds, or what the experiment says.
    pub value: f64,
}

/// Name of an experiment, its title with the unit, and what runs it.
type Experiment = (&'static str, &'static str, fn() -> Vec<Figure>);

const EXPERIMENTS: [Experiment; 10] = [
    ("layers", "layers of a send, 100 bytes (ns)", send::layers),
    ("spinning", "round trip by size, two processors, median (us)", echo::two_processors),
    ("pairs", "round trip of 20 bytes, two processors, in turns (us; times the bare ring)", echo::pairs),
    ("sleeping", "round trip by size, one processor, median (us)", echo::one_processor),
    ("adaptive", "round trip of 20 bytes, by itself, median (us)", echo::adaptive),
    ("remote", "round trip by size over loopback, median (us)", echo::remote),
    ("stream", "stream of 100 bytes to a busy receiver (million a second; CPU in us a message)", stream::local),
    ("network", "stream of 100 bytes over loopback (million a second; CPU in us a message)", stream::network),
    ("multicast", "one send of 20 bytes by number of receivers, median (us)", multicast::run),
    ("raid", "messages of a Raid transaction: 180, 90 % local (CPU in us a transaction)", raid::run),
];

fn main() {
    let mut wanted = Vec::new();
    let mut out: Option<PathBuf> = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--out" => out = arguments.next().map(PathBuf::from),
            "--plot" => {
                let directory = arguments.next().expect("--plot DIR");
                return plot::all(directory.as_ref()).expect("the plots");
            }
            "--bench" => {}
            name => wanted.push(name.to_owned()),
        }
    }
    println!("{}", process::machine());
    for (name, title, run) in EXPERIMENTS {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        println!("\n{name}: {title}");
        let figures = run();
        let mut lines = String::new();
        for Figure { name, x, value } in &figures {
            println!("  {name:44} {x:>8} {value:>12.3}");
            lines += &format!("{name},{x},{value}\n");
        }
        if let Some(out) = &out {
            std::fs::create_dir_all(out).expect("the directory for results");
            std::fs::write(out.join(format!("{name}.csv")), lines).expect("the results");
        }
    }
}

use tally_core::mutation::Sound;
fn main() {
    let mut args = std::env::args().skip(1);
    let a: u64 = args.next().unwrap().parse().unwrap();
    let b: u64 = args.next().unwrap().parse().unwrap();
    let traced = args.next().is_some();
    let mut bad = 0;
    let mut steps = 0;
    let t = std::time::Instant::now();
    for seed in a..b {
        let o = tally_sim::run::run_seed(seed, Sound, traced, &|_| {});
        steps += o.steps;
        if traced { for l in &o.lines { println!("{l}"); } }
        if let Some(v) = o.violation {
            bad += 1;
            println!("seed {seed}: {} {} ({} steps)", v.invariant, v.text, o.steps);
            if bad > 30 { break; }
        }
    }
    println!("{bad} bad, {steps} steps, {:.0}/s", steps as f64 / t.elapsed().as_secs_f64());
}

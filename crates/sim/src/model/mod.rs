//! placeholder
mod rules; mod search; mod steps; mod world; mod rows; mod tell;
pub use rules::*; pub use world::Faults; pub use rows::*;
pub fn try_one(setup: &Setup) {
    let t=std::time::Instant::now();
    let f=search::search(setup,|_|{});
    println!("{} states, rest {}, longest {}, {:.2?}", f.states,f.at_rest,f.longest_run,t.elapsed());
    if let Some(c)=f.breach { for (w,s) in &c.path { println!("   {}", tell::Told(setup,w,*s)); } println!("   => {}", c.breach); }
}

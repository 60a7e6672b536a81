//! A node that runs Pods as plain processes.
//!
//! Two halves with one seam. The Pod machine (`machine`) decides, without I/O: it is told what a Pod should be and what
//! became of its processes, and says what to do and what to report. The shim (`shim`) does: a small process of its own
//! that starts processes, reads what they write and keeps a record of how they ended, so that nothing of that is lost
//! when the process that decides is killed. Between them go deeds and reports (`port`).

pub mod env;
pub mod facts;
pub mod logs;
mod losses;
pub mod machine;
pub mod mailbox;
pub mod node;
pub mod notes;
mod object;
pub mod options;
pub mod pod;
pub mod port;
pub mod runtime;
pub mod shim;
pub mod sources;
pub mod volumes;

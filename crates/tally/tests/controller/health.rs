//! The health port, beside clients that connect and send nothing.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::process::Controller;
use crate::support::server::{Server, directory};

/// The kubelet gives a probe one second. On a machine that is busy with other work, the test gives it a few times what a
/// probe takes without other clients more.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_probe_is_answered_beside_silent_and_slow_connections() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let mut controller = Controller::start(&server.kubeconfig(), "watched", &["--leader-elect=false"]);
    controller.until_it_says("/metrics");
    let address = controller.address();
    let alone = Instant::now();
    assert_eq!(controller.get("/livez").0, 200);
    let within = ANSWERED_WITHIN + 5 * alone.elapsed();
    let mut silent = Vec::new();
    for number in 0..448 {
        let mut stream = TcpStream::connect(&address).unwrap();
        if number % 2 == 0 {
            // The server may have closed it for a newer one.
            let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nhost: ");
        }
        silent.push(stream);
    }
    let mut worst = Duration::ZERO;
    for _ in 0..20 {
        let asked = Instant::now();
        let (code, said) = controller.get("/livez");
        worst = worst.max(asked.elapsed());
        assert_eq!(code, 200, "{said}");
        silent.push(TcpStream::connect(&address).unwrap());
    }
    println!("a probe beside {} connections: {worst:.1?} at worst", silent.len());
    assert!(worst < within, "{worst:?}, more than {within:?}");
    let (_, metrics) = controller.get("/metrics");
    assert!(metrics.contains("tally_connections_closed_total{reason=\"place_needed\"}"), "{metrics}");
}

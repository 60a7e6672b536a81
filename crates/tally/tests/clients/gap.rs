//! A connection that can break: TCP between the clients and the server, without looking into it.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Gap {
    pub address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Gap {
    /// Forwards connections to `server`.
    pub async fn start(server: String) -> Gap {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (open, _) = watch::channel(true);
        let state = open.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server.clone(), state.subscribe()));
            }
        });
        Gap { address, open }
    }

    /// Closes all connections. New ones are accepted and wait, so that a client needs no luck with its retries.
    pub fn hold(&self) {
        self.open.send_replace(false);
    }

    pub fn release(&self) {
        self.open.send_replace(true);
    }
}

async fn forward(mut client: TcpStream, server: String, mut open: watch::Receiver<bool>) {
    if open.wait_for(|open| *open).await.is_err() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = open.wait_for(|open| !*open) => {}
    }
}

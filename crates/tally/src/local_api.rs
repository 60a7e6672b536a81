//! The API of a data directory that is in use: a Unix socket in it, through which other commands read.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tally_registry::Registry;
use tally_remote::{Remote, connect};
use tally_server::LocalServer;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::data_dir;
use crate::node::NodeLogs;

const SOCKET: &str = "api.sock";

/// As many as the standard library lets wait until they are accepted.
const WAITING_CONNECTIONS: i32 = 128;

/// The longest path of a socket that the kernel accepts.
const LONGEST_PATH: usize = 107;

/// Serves until it is dropped.
pub struct LocalApi {
    socket: PathBuf,
    serving: JoinHandle<()>,
}

impl LocalApi {
    /// This process must have the data directory. `controllers`: those that run in it.
    pub fn start(
        data: &Path,
        registry: Arc<Registry>,
        logs: Option<NodeLogs>,
        controllers: Vec<&'static str>,
    ) -> io::Result<Self> {
        let socket = data.join(SOCKET);
        // A process that was killed leaves its socket behind.
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (path, _directory) = short_path(data)?;
        let listener = listen(&path)?;
        let files = {
            let data = data.to_owned();
            Arc::new(move |keys| {
                data_dir::backup_files(&data, keys).map_err(|error| io::Error::other(format!("{error:#}")))
            })
        };
        let server = LocalServer::new(registry).with_backup_files(files);
        server.add_controllers(controllers);
        if let Some(logs) = logs {
            server.add_logs(logs);
        }
        let serving = tokio::spawn(server.serve(listener, std::future::pending()));
        Ok(Self { socket, serving })
    }
}

impl Drop for LocalApi {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
        self.serving.abort();
    }
}

/// Listens on a socket that only this user can connect to, whatever the umask is: who may write to it is administrator.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets the mode that the socket has when it is bound: there is no moment at which it is open to others.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, WAITING_CONNECTIONS)?;
    UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))
}

/// The API of the process that has a data directory. None: no process serves there.
pub async fn connect(data: &Path) -> Option<Remote> {
    let (path, directory) = short_path(data).ok()?;
    UnixStream::connect(&path).await.ok()?;
    // Later connections use the same path.
    std::mem::forget(directory);
    Some(Remote::new(connect::local(&path)))
}

/// The response to one request to the process that has a data directory. None: no process serves there.
pub async fn get(data: &Path, path: &str) -> Option<Response<Incoming>> {
    let (socket, _directory) = short_path(data).ok()?;
    let stream = UnixStream::connect(&socket).await.ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    // Ends with the response, or with the connection.
    tokio::spawn(connection);
    let request = Request::get(path).header("host", "localhost").body(Empty::<Bytes>::new()).ok()?;
    sender.send_request(request).await.ok()
}

/// The path of the socket, through an open directory if it would be too long.
fn short_path(data: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let path = data.join(SOCKET);
    if path.as_os_str().len() <= LONGEST_PATH {
        return Ok((path, None));
    }
    let directory = File::open(data)?;
    Ok((format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()).into(), Some(directory)))
}

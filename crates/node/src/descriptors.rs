//! Descriptors that travel over Unix sockets, with the bytes that name them.
//!
//! A message has at most four. Those that arrive are kept in groups, one for each message that had any, and are taken
//! by the command or report that comes with them. A group that did not arrive whole, because no more files may be
//! opened, is empty: its message is refused, and no later message gets its descriptors.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;

/// Descriptors in one message.
pub const MOST: usize = 4;
/// Groups that have arrived and were not taken. A message takes its own as soon as it is read.
const MOST_GROUPS: usize = 64;
/// A packet of a [`PacketSocket`] is much shorter.
const LONGEST_PACKET: usize = 16 * 1024;

/// Sends bytes and descriptors. If not all bytes are sent, the descriptors were sent with the first ones.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if descriptors.len() > MOST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives bytes, and the descriptors that came with the first of them, if any.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<Vec<OwnedFd>>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let is_cut = message.flags.contains(ReturnFlags::CTRUNC);
    let mut group = None;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            group.get_or_insert_with(Vec::new).extend(descriptors);
        }
    }
    Ok((message.bytes, if is_cut { Some(Vec::new()) } else { group }))
}

/// The groups of descriptors that a [`DescriptorReader`] has received.
#[derive(Clone, Default)]
pub struct ReceivedGroups(Rc<RefCell<VecDeque<Vec<OwnedFd>>>>);

impl ReceivedGroups {
    /// The descriptors of the message that was read last. None: it has none, or other ones than it should have.
    pub fn take(&self, count: usize) -> Option<Vec<OwnedFd>> {
        self.0.borrow_mut().pop_front().filter(|group| group.len() == count)
    }
}

/// Reads a socket whose messages may have descriptors.
pub struct DescriptorReader {
    half: OwnedReadHalf,
    received: ReceivedGroups,
}

impl DescriptorReader {
    pub fn new(half: OwnedReadHalf) -> (Self, ReceivedGroups) {
        let received = ReceivedGroups::default();
        (Self { half, received: received.clone() }, received)
    }
}

impl AsyncRead for DescriptorReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let socket = self.half.as_ref();
        loop {
            ready!(socket.poll_read_ready(cx))?;
            let room = buffer.initialize_unfilled();
            match socket.try_io(Interest::READABLE, || receive(socket.as_fd(), room)) {
                Ok((length, group)) => {
                    let mut groups = self.received.0.borrow_mut();
                    if let Some(group) = group
                        && groups.len() < MOST_GROUPS
                    {
                        groups.push_back(group);
                    }
                    drop(groups);
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// One end of a socket for short messages, each of which is read as a whole. Its end is the end of the other process, or
/// of its interest.
pub struct PacketSocket(UnixStream);

impl PacketSocket {
    /// One end for this process, and one for another.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self::new(ours)?, theirs))
    }

    /// An end that the other process made: it does not block.
    pub fn new(end: OwnedFd) -> io::Result<Self> {
        Ok(Self(UnixStream::from_std(end.into())?))
    }

    pub async fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let packet = serde_json::to_vec(message)?;
        self.0.async_io(Interest::WRITABLE, || send(self.0.as_fd(), &packet, descriptors)).await.map(drop)
    }

    /// None: the other end is closed. Cancel safe.
    pub async fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut buffer = vec![0; LONGEST_PACKET];
        let received = self.0.async_io(Interest::READABLE, || receive(self.0.as_fd(), &mut buffer)).await?;
        match received {
            (0, _) => Ok(None),
            (length, group) => Ok(Some((serde_json::from_slice(&buffer[..length])?, group.unwrap_or_default()))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read, Write};

    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn descriptors_arrive_with_their_message_and_with_no_other() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, groups) = DescriptorReader::new(theirs.into_split().0);
        let (mut first, first_end) = io::pipe().unwrap();
        let (mut second, second_end) = io::pipe().unwrap();
        let say = |bytes: &[u8], descriptors: &[BorrowedFd<'_>]| {
            assert_eq!(send(ours.as_fd(), bytes, descriptors).unwrap(), bytes.len());
        };
        say(b"plain", &[]);
        say(b"one", &[first_end.as_fd()]);
        say(b"two", &[second_end.as_fd(), first_end.as_fd()]);
        let mut text = vec![0; 11];
        reader.read_exact(&mut text).await.unwrap();
        assert_eq!(text, b"plainonetwo");
        drop((first_end, second_end));
        let mut one = groups.take(1).unwrap();
        let mut two = groups.take(2).unwrap();
        assert!(groups.take(0).is_none());
        std::fs::File::from(two.remove(0)).write_all(b"second").unwrap();
        std::fs::File::from(one.remove(0)).write_all(b"first").unwrap();
        drop((one, two));
        let (mut read, mut also) = (String::new(), String::new());
        first.read_to_string(&mut read).unwrap();
        second.read_to_string(&mut also).unwrap();
        assert_eq!((read.as_str(), also.as_str()), ("first", "second"));
    }

    #[tokio::test]
    async fn a_group_of_another_size_is_not_given() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, groups) = DescriptorReader::new(theirs.into_split().0);
        let (_, end) = io::pipe().unwrap();
        send(ours.as_fd(), b"x", &[end.as_fd()]).unwrap();
        send(ours.as_fd(), b"y", &[end.as_fd(), end.as_fd()]).unwrap();
        reader.read_exact(&mut [0; 2]).await.unwrap();
        assert!(groups.take(2).is_none(), "the first has one");
        assert_eq!(groups.take(2).unwrap().len(), 2, "the second is not affected");
        send(ours.as_fd(), b"z", &[end.as_fd(); 5]).unwrap_err();
    }

    #[tokio::test]
    async fn packets_are_whole_and_the_end_is_noticed() {
        let (ours, theirs) = PacketSocket::pair().unwrap();
        let theirs = PacketSocket::new(theirs).unwrap();
        ours.send(&"a", &[]).await.unwrap();
        ours.send(&"b", &[]).await.unwrap();
        assert_eq!(theirs.receive::<String>().await.unwrap().unwrap().0, "a");
        assert_eq!(theirs.receive::<String>().await.unwrap().unwrap().0, "b");
        drop(ours);
        assert!(theirs.receive::<String>().await.unwrap().is_none());
    }
}

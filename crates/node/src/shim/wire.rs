//! The encoding of commands and reports: a length of four bytes, then JSON.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use crate::output::OutputEvent;
use crate::port::Report;

/// Messages of the shim to its parent.
#[derive(Debug, Serialize, Deserialize)]
pub enum Frame {
    /// The directory is locked; what an earlier run left behind follows.
    Ready,
    /// Another start would fail in the same way.
    Refused(String),
    Report(Box<Report>),
    /// For the reader of the output.
    Output(OutputEvent),
    /// A message for the user.
    Note(String),
}

/// A Pod's volumes are sent in one frame. ConfigMaps and Secrets are at most 1 MiB each and a byte takes up to four
/// characters: sixteen full ones fit.
pub const LONGEST: usize = 64 << 20;

/// Adds one frame to `buffer`.
pub fn encode(value: &impl Serialize, buffer: &mut Vec<u8>) -> io::Result<()> {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    let encoded = serde_json::to_writer(&mut *buffer, value).map_err(io::Error::from);
    let length = buffer.len() - start - 4;
    match encoded {
        Ok(()) if length <= LONGEST => {
            buffer[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
            Ok(())
        }
        outcome => {
            buffer.truncate(start);
            outcome.and(Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{length} bytes are too many"))))
        }
    }
}

/// The next frame; None if the stream ends between two frames. Not cancel safe.
pub async fn read<T: DeserializeOwned>(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<T>> {
    // Most frames are in the buffer as a whole, and need no copy.
    let buffered = reader.fill_buf().await?;
    if let Some((length, rest)) = buffered.split_first_chunk()
        && let length = u32::from_le_bytes(*length) as usize
        && let Some(text) = rest.get(..length)
        && length <= LONGEST
    {
        let parsed = serde_json::from_slice(text);
        reader.consume(size_of::<u32>() + length);
        return Ok(Some(parsed?));
    }
    let mut length = [0; 4];
    if reader.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut length[1..]).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    let mut text = Vec::new();
    // The buffer grows with the data: a wrong length allocates no memory.
    if reader.take(length as u64).read_to_end(&mut text).await? != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&text)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_out_as_they_went_in_and_half_a_frame_is_an_error() {
        let mut bytes = Vec::new();
        encode(&"one", &mut bytes).unwrap();
        encode(&"two", &mut bytes).unwrap();
        let mut reader = &bytes[..];
        assert_eq!(read::<String>(&mut reader).await.unwrap().unwrap(), "one");
        assert_eq!(read::<String>(&mut reader).await.unwrap().unwrap(), "two");
        assert_eq!(read::<String>(&mut reader).await.unwrap(), None);
        // No frame is in this buffer as a whole.
        let mut reader = tokio::io::BufReader::with_capacity(3, &bytes[..]);
        assert_eq!(read::<String>(&mut reader).await.unwrap().unwrap(), "one");
        assert_eq!(read::<String>(&mut reader).await.unwrap().unwrap(), "two");
        assert_eq!(read::<String>(&mut reader).await.unwrap(), None);
        for length in 1..9 {
            assert!(read::<String>(&mut &bytes[..length]).await.is_err(), "{length}");
        }
        assert!(read::<String>(&mut &u32::MAX.to_le_bytes()[..]).await.is_err());
    }
}

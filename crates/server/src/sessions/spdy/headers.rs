//! The headers of SPDY: names and values with lengths, all of them one compressed text (RFC 1950) with a dictionary that the
//! protocol defines.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

/// The words that the dictionary of SPDY/3 begins with, each preceded by its length.
const WORDS: &str = "options,head,post,put,delete,trace,accept,accept-charset,accept-encoding,accept-language,accept-ranges,\
    age,allow,authorization,cache-control,connection,content-base,content-encoding,content-language,content-length,\
    content-location,content-md5,content-range,content-type,date,etag,expect,expires,from,host,if-match,\
    if-modified-since,if-none-match,if-range,if-unmodified-since,last-modified,location,max-forwards,pragma,\
    proxy-authenticate,proxy-authorization,range,referer,retry-after,server,te,trailer,transfer-encoding,upgrade,\
    user-agent,vary,via,warning,www-authenticate,method,get,status,200 OK,version,HTTP/1.1,url,public,set-cookie,\
    keep-alive,origin";
/// What it ends with.
const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
    404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
    Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT\
    chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,\
    publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// How far back a compressed text can refer, twice: a power of two.
const WINDOW: usize = 64 * 1024;
/// The most that the headers of one frame may have when they are decompressed.
const LONGEST: usize = 64 * 1024;
/// The head of a compressed text with a dictionary: two bytes, and the checksum of the dictionary.
const HEAD: usize = 6;

fn dictionary() -> Vec<u8> {
    let mut text = Vec::new();
    for word in WORDS.split(',') {
        text.extend_from_slice(&u32::try_from(word.len()).unwrap_or_default().to_be_bytes());
        text.extend_from_slice(word.as_bytes());
    }
    text.extend_from_slice(TEXT.as_bytes());
    text
}

/// The checksum of RFC 1950.
fn checksum(text: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in text {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b << 16 | a
}

/// Names and values, as they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderList(Vec<(String, String)>);

impl HeaderList {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    fn parse(text: &[u8]) -> Option<Self> {
        fn number(text: &mut &[u8]) -> Option<usize> {
            let (number, rest) = text.split_first_chunk::<4>()?;
            *text = rest;
            usize::try_from(u32::from_be_bytes(*number)).ok()
        }
        fn word(text: &mut &[u8]) -> Option<String> {
            let length = number(text)?;
            let (word, rest) = text.split_at_checked(length)?;
            *text = rest;
            Some(String::from_utf8_lossy(word).into_owned())
        }
        let mut text = text;
        let count = number(&mut text)?;
        let mut list = Vec::new();
        // Each takes at least eight bytes, so a wrong count ends with the text.
        for _ in 0..count {
            list.push((word(&mut text)?, word(&mut text)?));
        }
        text.is_empty().then_some(Self(list))
    }
}

/// Decompresses headers, one frame after the other.
pub struct HeaderInflater {
    inflater: Box<DecompressorOxide>,
    /// The end of the text so far, in a circle.
    window: Vec<u8>,
    at: usize,
    has_begun: bool,
    is_broken: bool,
}

impl HeaderInflater {
    pub fn new() -> Self {
        let mut window = dictionary();
        let at = window.len();
        window.resize(WINDOW, 0);
        Self { inflater: Box::default(), window, at, has_begun: false, is_broken: false }
    }

    /// None: it is not a compressed list. Then nothing more can be read.
    pub fn read(&mut self, compressed: &[u8]) -> Option<HeaderList> {
        if self.is_broken {
            return None;
        }
        self.is_broken = true;
        let text = self.inflate(compressed)?;
        let list = HeaderList::parse(&text)?;
        self.is_broken = false;
        Some(list)
    }

    fn inflate(&mut self, mut input: &[u8]) -> Option<Vec<u8>> {
        if !self.has_begun {
            let (head, rest) = input.split_first_chunk::<HEAD>()?;
            let [method, flags, sum @ ..] = *head;
            let uses_dictionary = flags & 0x20 != 0 && u32::from_be_bytes(sum) == checksum(&dictionary());
            if method & 0x0f != 8 || u16::from_be_bytes([method, flags]) % 31 != 0 || !uses_dictionary {
                return None;
            }
            self.has_begun = true;
            input = rest;
        }
        let mut text = Vec::new();
        loop {
            let (status, read, written) =
                decompress(&mut self.inflater, input, &mut self.window, self.at, TINFL_FLAG_HAS_MORE_INPUT);
            input = input.get(read..)?;
            text.extend_from_slice(self.window.get(self.at..self.at + written)?);
            self.at = (self.at + written) % WINDOW;
            if text.len() > LONGEST {
                return None;
            }
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput if input.is_empty() => return Some(text),
                // The compressed text goes on as long as the connection.
                _ => return None,
            }
        }
    }
}

/// An empty list, compressed as the rest of a text: stored as it is, without the dictionary.
pub fn stored_headers(is_first: bool) -> Vec<u8> {
    /// Deflate, without a dictionary.
    const HEAD: [u8; 2] = [0x78, 0x01];
    let list = 0_u32.to_be_bytes();
    let length = (list.len() as u16).to_le_bytes();
    let mut text = Vec::new();
    if is_first {
        text.extend_from_slice(&HEAD);
    }
    // One block that is not the last: its length, the complement of the length, the content.
    text.push(0);
    text.extend_from_slice(&length);
    text.extend_from_slice(&length.map(|byte| !byte));
    text.extend_from_slice(&list);
    // An empty one: readers pass on what came before it.
    text.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_that_of_the_protocol() {
        assert_eq!((dictionary().len(), checksum(&dictionary())), (1423, 0xe3c6_a7c2));
    }

    #[test]
    fn lists_are_whole_or_refused() {
        let list = |count: u32, words: &[&str]| {
            let mut text = count.to_be_bytes().to_vec();
            for word in words {
                text.extend_from_slice(&(word.len() as u32).to_be_bytes());
                text.extend_from_slice(word.as_bytes());
            }
            text
        };
        let parsed = HeaderList::parse(&list(2, &["a", "1", "bc", ""])).unwrap_or_default();
        assert_eq!((parsed.get("a"), parsed.get("BC"), parsed.get("d")), (Some("1"), Some(""), None));
        for wrong in [list(2, &["a", "1"]), list(0, &["a", "1"]), list(u32::MAX, &["a", "1"]), vec![0, 0]] {
            assert_eq!(HeaderList::parse(&wrong), None, "{wrong:?}");
        }
        let mut long = list(1, &["a"]);
        long.extend_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(HeaderList::parse(&long), None);
    }

    #[test]
    fn what_cannot_be_decompressed_ends_it() {
        let mut inflater = HeaderInflater::new();
        assert_eq!(inflater.read(b"\x78\x01\x00\x00\x00\x00\x00"), None, "no dictionary");
        assert_eq!(inflater.read(b"\x78\xbb\xe3\xc6\xa7\xc2"), None, "nothing after an error");
        let mut inflater = HeaderInflater::new();
        assert_eq!(inflater.read(b"\x78\xbb\xe3\xc6\xa7\xc2\x07"), None, "a block of no known kind");
        // Stored as they are, in one frame after the other.
        let mut inflater = HeaderInflater::new();
        let first = [b"\x78\xbb\xe3\xc6\xa7\xc2".to_vec(), stored_headers(false)].concat();
        assert_eq!(inflater.read(&first), Some(HeaderList::default()));
        assert_eq!(inflater.read(&stored_headers(false)), Some(HeaderList::default()));
    }
}

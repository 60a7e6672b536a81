//! Links and sessions. Pure: times and random numbers are given.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};

/// How long a link can be used, unless the user says otherwise.
pub const LINK_FOR: Duration = Duration::from_secs(600);
/// How long a session lasts without a request.
const IDLE_FOR: Duration = Duration::from_secs(12 * 3600);
/// Sessions at once. The one that was idle longest ends for a new one.
const MOST_SESSIONS: usize = 16;

/// 256 random bits, as hexadecimal digits.
pub type Secret = String;

/// The hash of a secret: how long a comparison with it takes says nothing about the secret.
type Hash = Vec<u8>;

pub struct Sessions {
    /// How long a link can be used.
    link_for: Duration,
    /// The links that have not been used, by their tokens: when they were made.
    links: HashMap<Hash, Instant>,
    /// By the value of the cookie: the last request.
    open: HashMap<Hash, Instant>,
}

impl Sessions {
    pub fn new(link_for: Duration) -> Self {
        Self { link_for, links: HashMap::new(), open: HashMap::new() }
    }

    pub fn link_for(&self) -> Duration {
        self.link_for
    }

    pub fn add_link(&mut self, token: &str, now: Instant) {
        let link_for = self.link_for;
        self.links.retain(|_, made| now.duration_since(*made) < link_for);
        self.links.insert(hash(token), now);
    }

    /// Exchanges the token of a link for a session. False: it was used, is too old, or never existed.
    pub fn open(&mut self, token: &str, session: &str, now: Instant) -> bool {
        if self.links.remove(&hash(token)).is_none_or(|made| now.duration_since(made) >= self.link_for) {
            return false;
        }
        self.open.retain(|_, last| now.duration_since(*last) < IDLE_FOR);
        if self.open.len() >= MOST_SESSIONS {
            let oldest = self.open.iter().min_by_key(|(_, last)| **last).map(|(session, _)| session.clone());
            oldest.map(|session| self.open.remove(&session));
        }
        self.open.insert(hash(session), now);
        true
    }

    /// Whether the session is open. It stays so for longer by this.
    pub fn is_open(&mut self, session: &str, now: Instant) -> bool {
        match self.open.get_mut(&hash(session)) {
            Some(last) if now.duration_since(*last) < IDLE_FOR => {
                *last = now;
                true
            }
            _ => false,
        }
    }

    /// The same, without keeping it open for longer.
    pub fn exists(&self, session: &str, now: Instant) -> bool {
        self.open.get(&hash(session)).is_some_and(|last| now.duration_since(*last) < IDLE_FOR)
    }

    pub fn close(&mut self, session: &str) {
        self.open.remove(&hash(session));
    }
}

fn hash(secret: &str) -> Hash {
    digest(&SHA256, secret.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_one_session() {
        let (mut sessions, now) = (Sessions::new(LINK_FOR), Instant::now());
        sessions.add_link("t1", now);
        assert!(!sessions.open("t2", "s", now) && !sessions.open("", "s", now));
        assert!(sessions.open("t1", "s1", now) && sessions.is_open("s1", now));
        assert!(!sessions.open("t1", "s2", now), "the link was used");
        assert!(!sessions.is_open("s2", now) && !sessions.is_open("", now) && !sessions.is_open("t1", now));
        assert!(sessions.exists("s1", now) && !sessions.exists("s1", now + IDLE_FOR));
        sessions.close("s1");
        assert!(!sessions.is_open("s1", now) && !sessions.exists("s1", now));
    }

    #[test]
    fn links_and_sessions_end() {
        let (mut sessions, now) = (Sessions::new(LINK_FOR), Instant::now());
        sessions.add_link("t1", now);
        assert!(!sessions.open("t1", "s1", now + LINK_FOR));
        sessions.add_link("t2", now);
        assert!(sessions.open("t2", "s2", now));
        let later = now + IDLE_FOR - Duration::from_secs(1);
        assert!(sessions.is_open("s2", later), "a request keeps it open");
        assert!(sessions.is_open("s2", later + IDLE_FOR - Duration::from_secs(1)));
        assert!(!sessions.is_open("s2", later + IDLE_FOR * 3));
    }

    #[test]
    fn there_are_only_so_many_sessions() {
        let (mut sessions, now) = (Sessions::new(LINK_FOR), Instant::now());
        for at in 0..MOST_SESSIONS + 1 {
            let now = now + Duration::from_secs(at as u64);
            sessions.add_link(&format!("t{at}"), now);
            assert!(sessions.open(&format!("t{at}"), &format!("s{at}"), now));
        }
        assert!(!sessions.is_open("s0", now) && sessions.is_open("s1", now + Duration::from_secs(1)));
    }
}

//! Chooses the next fault from a seed.

use std::collections::BTreeMap;
use std::time::Duration;

/// Which faults are allowed.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Also what a correct network with one controller behind it does not do: a request that arrives long after its
    /// sender abandoned it, and a first list from the past.
    pub zombies: bool,
}

/// The fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The request is delayed before and after it is carried out.
    Delay(Duration, Duration),
    /// Never answered; carried out or not.
    Silence {
        done: bool,
    },
    /// The connection breaks; carried out or not.
    Reset {
        done: bool,
    },
    /// The connection breaks, and the request is carried out after that.
    Later(Duration),
    /// Carried out, and half of the response arrives.
    Half,
    /// Answered by the proxy as a server would, and not carried out.
    Refuse(u16),
    /// Answered with an HTML page of the proxy, and not carried out.
    Page(u16),
    /// Carried out, but answered with an error: a Status that names no object, or a page.
    Lie {
        code: u16,
        page: bool,
    },
}

/// How a watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Ended cleanly, as servers do.
    Clean,
    Broken,
    /// In the middle of a line.
    Torn,
    /// Ended with 410: the server no longer has the revision.
    Expired,
    /// The stream stays open, but nothing more is sent.
    NoopObserver,
}

pub struct Dice {
    rng: fastrand::Rng,
    weather: Weather,
    thrown: BTreeMap<String, usize>,
}

impl Dice {
    pub fn new(seed: u64, weather: Weather) -> Dice {
        Dice { rng: fastrand::Rng::with_seed(seed), weather, thrown: BTreeMap::new() }
    }

    pub fn note(&mut self, what: &str) {
        *self.thrown.entry(what.to_owned()).or_default() += 1;
    }

    pub fn thrown(&self) -> BTreeMap<String, usize> {
        self.thrown.clone()
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.u64(range))
    }

    /// The odds are per thousand: about one request in four gets a fault.
    pub fn request(&mut self, changes: bool) -> Fault {
        let (before, after, long) = (self.millis(0..60), self.millis(0..60), self.millis(200..1500));
        let done = self.rng.bool() && changes;
        let page = self.rng.bool();
        let fault = match self.rng.u32(0..1000) {
            0..70 => Fault::Delay(before, after),
            70..80 => Fault::Delay(long, Duration::ZERO),
            80..90 => Fault::Delay(Duration::ZERO, long),
            90..96 => Fault::Silence { done },
            96..116 => Fault::Reset { done },
            116..124 if changes => Fault::Half,
            124..134 if changes && self.weather.zombies => Fault::Later(long),
            134..154 if changes => Fault::Refuse(409),
            154..162 => Fault::Refuse(429),
            162..174 => Fault::Refuse(500),
            174..184 => Fault::Refuse(503),
            184..190 => Fault::Refuse(504),
            190..200 if changes => Fault::Lie { code: 500, page },
            200..206 if changes => Fault::Lie { code: 504, page },
            206..212 if changes => Fault::Lie { code: 404, page },
            212..218 if changes => Fault::Lie { code: 409, page },
            218..258 => Fault::Page(404),
            258..262 => Fault::Page(503),
            262..266 if changes => Fault::Page(409),
            266..268 => Fault::Page(200),
            _ => Fault::None,
        };
        let name = match fault {
            Fault::None => "untouched",
            Fault::Delay(..) => "delayed",
            Fault::Silence { .. } => "never answered",
            Fault::Reset { done: false } => "reset, not done",
            Fault::Reset { done: true } => "reset, but done",
            Fault::Later(_) => "reset, done later",
            Fault::Half => "half an answer",
            Fault::Refuse(code) => return self.noted(format!("{code}"), fault),
            Fault::Page(code) => return self.noted(format!("page {code}"), fault),
            Fault::Lie { code, .. } => return self.noted(format!("{code}, but done"), fault),
        };
        self.note(name);
        fault
    }

    fn noted(&mut self, what: String, fault: Fault) -> Fault {
        self.note(&what);
        fault
    }

    /// The fault before a watch begins.
    pub fn opening(&mut self) -> Fault {
        let wait = self.millis(0..200);
        let fault = match self.rng.u32(0..100) {
            0..15 => Fault::Delay(wait, Duration::ZERO),
            15..20 => Fault::Refuse(503),
            20..24 => Fault::Refuse(500),
            24..26 => Fault::Refuse(429),
            26..29 => Fault::Reset { done: false },
            29..30 => Fault::Silence { done: false },
            30..32 => Fault::Page(404),
            32..33 => Fault::Page(410),
            33..34 => Fault::Page(200),
            _ => Fault::None,
        };
        self.note(match fault {
            Fault::None | Fault::Delay(..) => "watch opened",
            Fault::Silence { .. } => "watch never opened",
            _ => "watch refused",
        });
        fault
    }

    /// How long a watch lives, and how it ends.
    pub fn life(&mut self) -> (Duration, Cut) {
        let cut = match self.rng.u32(0..100) {
            0..30 => Cut::Clean,
            30..50 => Cut::Broken,
            50..65 => Cut::Torn,
            65..92 => Cut::Expired,
            _ => Cut::NoopObserver,
        };
        let lives = if self.rng.u32(0..3) == 0 { self.millis(0..150) } else { self.millis(150..2500) };
        (lives, cut)
    }

    /// How long an event is delayed.
    pub fn lag(&mut self) -> Option<Duration> {
        let lag = match self.rng.u32(0..100) {
            0..12 => self.millis(0..50),
            12..15 => self.millis(50..700),
            _ => return None,
        };
        self.note("watch lags");
        Some(lag)
    }

    pub fn one_in(&mut self, many: u32) -> bool {
        self.rng.u32(0..many) == 0
    }

    pub fn choose(&mut self, of: usize) -> usize {
        self.rng.usize(0..of)
    }

    pub fn travels(&mut self) -> bool {
        self.weather.zombies && self.rng.bool()
    }
}

//! Get and list.

use tally_api::failure::{Cause, Details, Failure};
use tally_api::options::{ListOptions, ReadAt};
use tally_api::selector::Filter;
use tally_store::{Entry, TooOld};

use crate::{Listing, Object, Registry, Result, Target, continuation, view};

impl Registry {
    pub fn get(&self, target: Target<'_>, read_at: ReadAt) -> Result<Object> {
        self.check_reached(read_at)?;
        match self.store.get(&target.key()) {
            Some(entry) => Ok(Object { bytes: view::shown(target.resource, entry.value.clone()) }),
            None => Err(Failure::not_found(target.resource, target.name)),
        }
    }

    pub fn list(&self, target: Target<'_>, options: &ListOptions) -> Result<Listing> {
        let filter = Filter::parse(target.resource, &options.label_selector, &options.field_selector)?;
        self.check_reached(options.read_at)?;
        let prefix = target.prefix();
        let (at, after) = if options.continue_token.is_empty() {
            match options.read_at {
                ReadAt::Exactly(revision) => (Some(revision), None),
                ReadAt::Newest | ReadAt::Any | ReadAt::NotOlderThan(_) => (None, None),
            }
        } else {
            let (revision, start) = continuation::read(&options.continue_token)?;
            (Some(revision), Some(format!("{prefix}{start}")))
        };
        let everything = filter.is_everything();
        // With a selector, one cannot know how much must be read for a full page.
        let page_limit = if everything { options.limit } else { None };
        let page = self
            .store
            .range(&prefix, after.as_deref(), page_limit, at)
            .map_err(|too_old| if options.continue_token.is_empty() { gone(too_old) } else { continue_is_gone() })?;
        let mut remaining = (everything && page.more).then_some(page.remaining);
        let mut more = page.more;
        let mut items: Vec<Entry> = page.entries;
        if !everything {
            items.retain(|entry| filter.matches_stored(target.resource, &entry.value));
            if let Some(limit) = options.limit.filter(|limit| items.len() > *limit) {
                items.truncate(limit);
                more = true;
                remaining = None;
            }
        }
        let continue_token = match items.last().filter(|_| more) {
            Some(last) => continuation::write(page.revision, last.key.strip_prefix(&prefix).unwrap_or(&last.key)),
            None => String::new(),
        };
        let shown = |entry: Entry| Object { bytes: view::shown(target.resource, entry.value.clone()) };
        let items = items.into_iter().map(shown).collect();
        Ok(Listing { items, revision: page.revision, continue_token, remaining })
    }

    /// A client that has seen the future must come back later: we would show it the past.
    pub(crate) fn check_reached(&self, read_at: ReadAt) -> Result<()> {
        let (ReadAt::NotOlderThan(wanted) | ReadAt::Exactly(wanted)) = read_at else { return Ok(()) };
        let revision = self.store.revision();
        if wanted <= revision {
            return Ok(());
        }
        let text = format!("Too large resource version: {wanted}, current: {revision}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        let details = Details { causes: vec![cause], retry_after_seconds: 1, ..Details::default() };
        Err(Failure::new(504, "Timeout", text).with(details))
    }
}

pub fn gone(too_old: TooOld) -> Failure {
    Failure::expired(format!("too old resource version: {} ({})", too_old.requested, too_old.oldest))
}

fn continue_is_gone() -> Failure {
    Failure::expired("the pages of this list are too old to be continued; start again without the continue parameter")
}

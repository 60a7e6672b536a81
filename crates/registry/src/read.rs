//! Get and list.

use tally_api::options::{ListOptions, ReadAt};
use tally_api::scale::{self, SCALE};
use tally_api::selector::Filter;
use tally_api::status_error::{Cause, Details, StatusError};
use tally_store::{Entry, TooOld};

use crate::{Listing, Object, Registry, Result, Target, continuation, text, view};

impl Registry {
    pub fn get(&self, target: Target<'_>, read_at: ReadAt) -> Result<Object> {
        self.check_reached(read_at)?;
        match self.store.get(&target.key()) {
            Some(entry) if target.is_subresource(SCALE) => {
                Ok(text::unstored(&scale::of(&text::parse(&entry.value))).into())
            }
            Some(entry) => Ok(view::object(target.resource, &entry)),
            None => Err(StatusError::not_found(target.resource, target.name)),
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
            let after = format!("{prefix}{start}");
            // A future revision: the token is from a store that is lost, and the state of its pages is not in this
            // store.
            if revision.is_some_and(|revision| revision > self.store.revision()) {
                return Err(page_is_gone(Some(&after), &prefix));
            }
            (revision, Some(after))
        };
        let everything = filter.is_everything();
        // With a selector, the number of objects to read for a full page is unknown in advance.
        let page_limit = if everything { options.limit } else { None };
        let page = self.store.range(&prefix, after.as_deref(), page_limit, at).map_err(|_| {
            if options.continue_token.is_empty() { list_is_gone() } else { page_is_gone(after.as_deref(), &prefix) }
        })?;
        let remaining = (everything && page.more).then_some(page.remaining);
        let mut more = page.more;
        let mut items: Vec<Entry> = page.entries;
        if !everything {
            // There is another page if objects are left to filter, whether or not one of them matches.
            let (mut seen, all, limit) = (0, items.len(), options.limit.unwrap_or(usize::MAX));
            let mut chosen = Vec::new();
            for entry in items {
                seen += 1;
                if filter.matches_stored(target.resource, &entry.value) {
                    chosen.push(entry);
                }
                if chosen.len() == limit {
                    break;
                }
            }
            items = chosen;
            more = seen < all;
        }
        let continue_token = match items.last().filter(|_| more) {
            Some(last) => continuation::write(Some(page.revision), last.key.strip_prefix(&prefix).unwrap_or(&last.key)),
            None => String::new(),
        };
        let shown = |entry: Entry| view::object(target.resource, &entry);
        let items = items.into_iter().map(shown).collect();
        Ok(Listing { items, revision: page.revision, continue_token, remaining })
    }

    /// A client that has seen a newer revision must retry later: this store would return an older state.
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
        Err(StatusError::new(504, "Timeout", text).with(details))
    }
}

pub fn gone(too_old: TooOld) -> StatusError {
    StatusError::expired(format!("too old resource version: {} ({})", too_old.requested, too_old.oldest))
}

fn list_is_gone() -> StatusError {
    StatusError::expired("The resourceVersion for the provided list is too old.")
}

/// The history no longer contains the revision of the pages. The client can still continue, with the current state.
fn page_is_gone(after: Option<&str>, prefix: &str) -> StatusError {
    let mut failure = StatusError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
         the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
         Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
         deleted between the time the first chunk was returned and now may show up in the list.",
    );
    let after = after.and_then(|after| after.strip_prefix(prefix)).unwrap_or_default();
    failure.continue_token = continuation::write(None, after);
    failure
}

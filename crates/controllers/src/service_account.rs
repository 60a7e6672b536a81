//! A ServiceAccount `default` in every namespace: Pods that name none run as it.

use serde_json::{Value, json};

use crate::per_namespace::{PerNamespace, Rule};
use tally_runtime::controller::{Kind, Stream};

pub struct DefaultServiceAccount;

pub fn controller() -> PerNamespace<DefaultServiceAccount> {
    PerNamespace::new(DefaultServiceAccount)
}

impl Rule for DefaultServiceAccount {
    const CONTROLLER: &'static str = "service-account-controller";
    const NAME: &'static str = "default";
    const STREAM: Stream = Stream::metadata(Kind::SERVICE_ACCOUNT);

    fn wanted(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": Self::NAME}})
    }

    /// Only its existence is required.
    fn repaired(&self, _: &[u8]) -> Option<Value> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_runtime::testing::{Probe, done, refused};

    fn namespace(name: &str, revision: u64) -> Value {
        json!({"metadata": {"name": name, "uid": format!("ns-{name}"), "resourceVersion": revision.to_string()}})
    }

    fn account(namespace: &str, name: &str, uid: &str, revision: u64) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": revision.to_string()}})
    }

    fn started(namespaces: &[Value], accounts: &[Value]) -> Probe<PerNamespace<DefaultServiceAccount>> {
        let mut probe = Probe::new(controller());
        probe.lists(Kind::NAMESPACE, namespaces, 10);
        assert_eq!(probe.asks(), Vec::<String>::new(), "what there is must be known first");
        probe.lists(Kind::SERVICE_ACCOUNT, accounts, 10);
        probe
    }

    #[test]
    fn every_namespace_without_one_gets_one() {
        let mut probe = started(
            &[namespace("a", 1), namespace("b", 2), namespace("c", 3)],
            &[account("b", "default", "u1", 4), account("c", "other", "u2", 5)],
        );
        assert_eq!(probe.asks(), ["create serviceaccounts a/", "create serviceaccounts c/"]);
        assert_eq!(
            probe.body(0),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
        );
        probe.sees(Kind::NAMESPACE, namespace("d", 11));
        assert_eq!(probe.asks(), ["create serviceaccounts d/"]);
    }

    #[test]
    fn one_that_was_deleted_comes_back_unless_its_namespace_goes() {
        let mut probe = started(&[namespace("a", 1)], &[account("a", "default", "u1", 2)]);
        probe.gone(Kind::SERVICE_ACCOUNT, account("a", "default", "u1", 11));
        assert_eq!(probe.asks(), ["create serviceaccounts a/"]);
        probe.answer(0, done(account("a", "default", "u2", 12)));
        assert_eq!(probe.asks(), Vec::<String>::new(), "written, though not seen yet");
        probe.sees(Kind::SERVICE_ACCOUNT, account("a", "default", "u2", 12));

        let mut ending = namespace("a", 13);
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        probe.sees(Kind::NAMESPACE, ending);
        probe.gone(Kind::SERVICE_ACCOUNT, account("a", "default", "u2", 14));
        assert_eq!(probe.asks(), Vec::<String>::new());
    }

    #[test]
    fn one_that_was_deleted_before_its_creation_was_answered_comes_back() {
        let mut probe = started(&[namespace("a", 1)], &[]);
        assert_eq!(probe.asks(), ["create serviceaccounts a/"]);
        probe.sees(Kind::SERVICE_ACCOUNT, account("a", "default", "u1", 11));
        probe.gone(Kind::SERVICE_ACCOUNT, account("a", "default", "u1", 12));
        assert_eq!(probe.asks(), Vec::<String>::new(), "one thing at a time");
        probe.answer(0, done(account("a", "default", "u1", 11)));
        assert_eq!(probe.asks(), ["create serviceaccounts a/"]);
    }

    #[test]
    fn a_refusal_is_tried_again_later_and_later() {
        let mut probe = started(&[namespace("a", 1)], &[]);
        for wait in [250, 500, 1000] {
            assert_eq!(probe.asks(), ["create serviceaccounts a/"]);
            probe.answer(0, refused(403, "Forbidden"));
            assert_eq!(probe.wakes_in(), Some(wait));
            probe.passes(wait - 1);
            assert_eq!(probe.asks(), Vec::<String>::new());
            probe.passes(1);
        }
        assert_eq!(probe.asks(), ["create serviceaccounts a/"]);
        probe.answer(0, refused(409, "AlreadyExists"));
        probe.sees(Kind::SERVICE_ACCOUNT, account("a", "default", "u1", 11));
        assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
    }

    #[test]
    fn thousands_of_namespaces_take_turns() {
        let namespaces: Vec<_> = (0..1000).map(|n| namespace(&format!("n{n:04}"), 1)).collect();
        let mut probe = started(&namespaces, &[]);
        let mut created = 0;
        loop {
            let asked = probe.asks().len();
            assert!(asked <= 16);
            if asked == 0 {
                break;
            }
            created += asked;
            for n in 0..asked {
                probe.answer(n, done(account("x", "default", "u", 20)));
            }
        }
        assert_eq!(created, 1000);
    }
}

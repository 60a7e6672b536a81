use super::*;

#[test]
fn every_document_of_the_index_is_there() {
    let index: Value = serde_json::from_slice(&index().document()).unwrap();
    for (path, entry) in index["paths"].as_object().unwrap() {
        let cached = document(path).unwrap();
        let text: Value = serde_json::from_slice(&cached.document()).unwrap();
        assert_eq!(text["openapi"], "3.0.0", "{path}");
        assert_eq!(entry["serverRelativeURL"], format!("/openapi/v3/{path}?hash={}", cached.hash));
    }
    assert!(document("apis/nope/v1").is_none());
}

#[test]
fn clients_find_that_fields_are_validated_here() {
    let document: Value = serde_json::from_slice(&third_document("apis/batch/v1")).unwrap();
    let patch = &document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "batch", "version": "v1", "kind": "Job"}));
    assert_eq!(patch["operationId"], "patchBatchV1NamespacedJob");
    let names: Vec<&Value> = patch["parameters"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert!(names.contains(&&json!("fieldValidation")) && names.contains(&&json!("dryRun")), "{names:?}");
}

#[test]
fn what_is_kept_is_small() {
    let third: usize = third().values().map(Cached::compressed_size).sum();
    let second = second().compressed_size() + second_in_binary().compressed_size();
    assert!((20_000..200_000).contains(&third) && (20_000..200_000).contains(&second), "{third} and {second} bytes");
}

#[test]
fn a_document_in_protobuf_has_as_many_parts_as_in_json() {
    let json: Value = serde_json::from_slice(&second().document()).unwrap();
    let binary = second_in_binary().document();
    let parts = |number: u32| {
        let field = fields(&binary).into_iter().find(|(found, _)| *found == number).unwrap().1;
        fields(field).len()
    };
    assert_eq!(parts(8), json["paths"].as_object().unwrap().len());
    assert_eq!(parts(9), json["definitions"].as_object().unwrap().len());
}

/// The fields of a message that has no other ones than of bytes.
fn fields(mut message: &[u8]) -> Vec<(u32, &[u8])> {
    fn varint(message: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (byte, rest) = message.split_first().unwrap();
            *message = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        assert_eq!(tag & 7, 2);
        let length = usize::try_from(varint(&mut message)).unwrap();
        let (content, rest) = message.split_at(length);
        found.push((u32::try_from(tag >> 3).unwrap(), content));
        message = rest;
    }
    found
}

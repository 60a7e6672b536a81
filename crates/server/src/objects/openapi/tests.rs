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
    let document = third_document("apis/batch/v1");
    let patch = &document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "batch", "version": "v1", "kind": "Job"}));
    assert_eq!(patch["operationId"], "patchBatchV1NamespacedJob");
    let names: Vec<&Value> = patch["parameters"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert!(names.contains(&&json!("fieldValidation")) && names.contains(&&json!("dryRun")), "{names:?}");
}

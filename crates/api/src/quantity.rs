//! Amounts such as `500m` and `1Gi`.

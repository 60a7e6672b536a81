/// A [`Value`](crate::Value) as JSON, with expressions in it. Values that it takes in stay shared.
#[macro_export]
macro_rules! json {
    (@comma ,) => { 1 };
    (@comma $other:tt) => { 0 };
    (@items $list:ident) => {};
    (@items $list:ident null $(, $($rest:tt)*)?) => {
        $list.push($crate::Value::Null);
        $($crate::json!(@items $list $($rest)*);)?
    };
    (@items $list:ident [$($inner:tt)*] $(, $($rest:tt)*)?) => {
        $list.push($crate::json!([$($inner)*]));
        $($crate::json!(@items $list $($rest)*);)?
    };
    (@items $list:ident {$($inner:tt)*} $(, $($rest:tt)*)?) => {
        $list.push($crate::json!({$($inner)*}));
        $($crate::json!(@items $list $($rest)*);)?
    };
    (@items $list:ident $item:expr $(, $($rest:tt)*)?) => {
        $list.push($crate::ToValue::to_value(&$item));
        $($crate::json!(@items $list $($rest)*);)?
    };
    (@fields $map:ident) => {};
    (@fields $map:ident $name:tt : null $(, $($rest:tt)*)?) => {
        $map.insert($name, $crate::Value::Null);
        $($crate::json!(@fields $map $($rest)*);)?
    };
    (@fields $map:ident $name:tt : [$($inner:tt)*] $(, $($rest:tt)*)?) => {
        $map.insert($name, $crate::json!([$($inner)*]));
        $($crate::json!(@fields $map $($rest)*);)?
    };
    (@fields $map:ident $name:tt : {$($inner:tt)*} $(, $($rest:tt)*)?) => {
        $map.insert($name, $crate::json!({$($inner)*}));
        $($crate::json!(@fields $map $($rest)*);)?
    };
    (@fields $map:ident $name:tt : $value:expr $(, $($rest:tt)*)?) => {
        $map.insert($name, $crate::ToValue::to_value(&$value));
        $($crate::json!(@fields $map $($rest)*);)?
    };
    (null) => {
        $crate::Value::Null
    };
    ([]) => {
        $crate::Value::Array($crate::List::default())
    };
    ([$($inner:tt)*]) => {{
        #[allow(clippy::vec_init_then_push)]
        let items = {
            let mut items: Vec<$crate::Value> = Vec::with_capacity(1 $(+ $crate::json!(@comma $inner))*);
            $crate::json!(@items items $($inner)*);
            items
        };
        $crate::Value::Array(items.into())
    }};
    ({}) => {
        $crate::Value::Object($crate::Map::new())
    };
    ({$($inner:tt)*}) => {{
        // As many as there are commas in the map itself, and one.
        let mut fields = $crate::Map::with_capacity(1 $(+ $crate::json!(@comma $inner))*);
        $crate::json!(@fields fields $($inner)*);
        $crate::Value::Object(fields)
    }};
    ($value:expr) => {
        $crate::ToValue::to_value(&$value)
    };
}

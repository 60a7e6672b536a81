//! `tally bench plot`: draws what `tally bench jobs -o json` printed. Two diagrams, one above the other, share the size of
//! the Job as their horizontal axis: processor time for each Pod, and the time from creation to completion.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use serde::Deserialize;

#[derive(ClapArgs)]
#[command(after_help = "Examples:
  tally bench jobs --all -o json > figures.json; tally bench plot figures.json > figures.svg
  tally bench plot before.json after.json > both.svg

Drawn are the cases of one Job of each size (1x1000-indexed and so on). Each file and each completion mode is a curve.

Exit code 0: done; 2: bad usage, or a file that cannot be drawn.")]
pub struct Args {
    /// Files with the lines of tally bench jobs -o json
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// One line of a file. Lines of other cases have no series.
#[derive(Deserialize)]
struct Line {
    series: Option<String>,
    #[serde(default)]
    pods: f64,
    #[serde(default)]
    wall_seconds: f64,
    #[serde(default)]
    processor_us_per_pod: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    pods: f64,
    cost: f64,
    wall: f64,
}

type Curve = (String, Vec<Point>);

pub fn run(args: &Args) -> Result<bool> {
    let mut curves = Vec::new();
    for file in &args.files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let name = if args.files.len() > 1 { format!("{name}, ") } else { String::new() };
        curves.extend(read(&name, &text).with_context(|| format!("cannot use {}", file.display()))?);
    }
    crate::terminal::print(&draw(&curves)?);
    Ok(true)
}

/// The curves of a file, with their points in order of size.
fn read(prefix: &str, text: &str) -> Result<Vec<Curve>> {
    let mut curves: BTreeMap<String, Vec<Point>> = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let line: Line = serde_json::from_str(line).with_context(|| format!("line {}", number + 1))?;
        let Some(series) = line.series else { continue };
        let cost = line.processor_us_per_pod.values().sum();
        let point = Point { pods: line.pods, cost, wall: line.wall_seconds };
        if !(point.pods >= 1.0 && point.wall > 0.0 && point.wall.is_finite() && (0.0..1e12).contains(&cost)) {
            bail!("line {}: a size, a time or a cost cannot be drawn", number + 1);
        }
        curves.entry(format!("{prefix}{series}")).or_default().push(point);
    }
    for points in curves.values_mut() {
        points.sort_by(|one, other| one.pods.total_cmp(&other.pods));
    }
    Ok(curves.into_iter().collect())
}

const WIDTH: f64 = 720.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 700.0;
const LEGEND: f64 = 20.0;
const HEIGHT_OF_ONE: f64 = 190.0;
const GAP: f64 = 60.0;

/// Can be told apart by people who see few colours, on white and on black.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// A scale of values along an axis. `to` is above `from`.
#[derive(Clone, Copy)]
struct Axis {
    from: f64,
    to: f64,
    is_log: bool,
}

impl Axis {
    /// Whole decades around all values, which are positive.
    fn log(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let (least, most) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
        let (from, to) = (least.log10().floor(), most.log10().ceil());
        Axis { from: 10f64.powf(from), to: 10f64.powf(if to > from { to } else { from + 1.0 }), is_log: true }
    }

    fn from_zero(values: impl Iterator<Item = f64>) -> Axis {
        let most = values.fold(0.0, f64::max).max(1.0);
        let step = step_of(most);
        Axis { from: 0.0, to: (most / step).ceil() * step, is_log: false }
    }

    fn ticks(self) -> Vec<f64> {
        if self.is_log {
            let decades = (self.to / self.from).log10().round() as i32;
            return (0..=decades).map(|decade| self.from * 10f64.powi(decade)).collect();
        }
        let step = step_of(self.to);
        (0..=(self.to / step).round() as i32).map(|tick| f64::from(tick) * step).collect()
    }

    /// From 0 to 1.
    fn place(self, value: f64) -> f64 {
        match self.is_log {
            true => (value / self.from).log10() / (self.to / self.from).log10(),
            false => (value - self.from) / (self.to - self.from),
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that fits about five times into it.
fn step_of(most: f64) -> f64 {
    let power = 10f64.powf((most / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|times| times * power).find(|step| most / step <= 5.0);
    step.unwrap_or(10.0 * power)
}

fn label(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{}", (value * 1e6).round() / 1e6),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn draw(curves: &[Curve]) -> Result<String> {
    let all = || curves.iter().flat_map(|(_, points)| points.iter());
    if all().next().is_none() {
        bail!("the files contain no case of one Job; tally bench jobs 1x1000-indexed -o json prints one");
    }
    let size = Axis::log(all().map(|point| point.pods));
    let first = LEGEND * (curves.len() as f64 + 1.0);
    let second = first + HEIGHT_OF_ONE + GAP;
    let height = second + HEIGHT_OF_ONE + GAP;
    // Colours of text and lines follow the reader's scheme; without a scheme they can be read on white.
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"Processor time for each Pod, and time to completion, by the number of Pods of a Job\">\n\
         <style>\ntext {{ font: 12px sans-serif; fill: #24292f }}\n.grid {{ stroke: #d0d7de }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .grid {{ stroke: #3d444d }} }}\n</style>\n"
    );
    for (number, (name, _)) in curves.iter().enumerate() {
        let (colour, y) = (COLOURS[number % COLOURS.len()], LEGEND * (number as f64 + 0.5));
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            y - 2.0,
            LEFT + 20.0,
            y + 4.0,
            escaped(name)
        );
    }
    let cost = Axis::from_zero(all().map(|point| point.cost));
    diagram(&mut svg, curves, (size, cost), first, "us of processor time for each Pod", |point| point.cost);
    let wall = Axis::log(all().map(|point| point.wall));
    diagram(&mut svg, curves, (size, wall), second, "seconds from creation to completion", |point| point.wall);
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn diagram(
    svg: &mut String,
    curves: &[Curve],
    (size, axis): (Axis, Axis),
    top: f64,
    title: &str,
    value: impl Fn(&Point) -> f64,
) {
    let x = |pods: f64| LEFT + size.place(pods) * (RIGHT - LEFT);
    let bottom = top + HEIGHT_OF_ONE;
    let y = |value: f64| bottom - axis.place(value) * HEIGHT_OF_ONE;
    // Writing to a String cannot fail.
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\">{title}</text>", top - 8.0);
    for tick in axis.ticks() {
        let y = y(tick);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            label(tick)
        );
    }
    for tick in size.ticks() {
        let x = x(tick);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            label(tick)
        );
    }
    let _ = writeln!(svg, "<text x=\"{RIGHT}\" y=\"{:.1}\" text-anchor=\"end\">Pods of the Job</text>", bottom + 36.0);
    for (number, (_, points)) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let places: Vec<(f64, f64)> = points.iter().map(|point| (x(point.pods), y(value(point)))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = writeln!(svg, "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", path.join("L"));
        for (x, y) in places {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const FIGURES: &str = r#"{"case":"1x1","pods":40,"wall_seconds":1.0,"processor_us_per_pod":{"server":900}}
{"case":"a","series":"Indexed","pods":10000,"wall_seconds":4.5,"processor_us_per_pod":{"server":300,"controller":50}}

{"case":"b","series":"Indexed","pods":1000,"wall_seconds":0.6,"processor_us_per_pod":{"server":400}}
{"case":"c","series":"NonIndexed","pods":1000,"wall_seconds":0.7,"processor_us_per_pod":{"server":410}}
"#;

    #[test]
    fn curves_are_read_in_order_of_size() {
        let curves = read("x, ", FIGURES).unwrap();
        let names: Vec<&str> = curves.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x, Indexed", "x, NonIndexed"]);
        let (small, large) = (Point { pods: 1e3, cost: 400.0, wall: 0.6 }, Point { pods: 1e4, cost: 350.0, wall: 4.5 });
        assert_eq!(curves[0].1, [small, large], "the cost is that of all processes");
        for wrong in ["{", r#"{"series":"a","pods":0,"wall_seconds":1}"#, r#"{"series":"a","pods":1,"wall_seconds":0}"#]
        {
            assert!(format!("{:#}", read("", wrong).unwrap_err()).contains("line 1"), "{wrong}");
        }
    }

    #[test]
    fn the_picture_has_all_points_and_is_read_in_light_and_dark() {
        let svg = draw(&read("<&>", FIGURES).unwrap()).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("prefers-color-scheme: dark"));
        assert_eq!(svg.matches("<circle").count(), 6, "three points in two diagrams");
        assert!(svg.contains("&lt;&amp;&gt;Indexed") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        // All elements that are opened are closed.
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        let empty = draw(&read("", r#"{"case":"1x1"}"#).unwrap()).unwrap_err();
        assert!(empty.to_string().contains("1x1000-indexed"), "{empty}");
    }

    #[test]
    fn axes_have_round_numbers() {
        let labels = |axis: Axis| axis.ticks().into_iter().map(label).collect::<Vec<_>>().join(" ");
        for (values, expected) in
            [(&[430.0][..], "0 100 200 300 400 500"), (&[0.0], "0 0.2 0.4 0.6 0.8 1"), (&[1234.0], "0 500 1k 1.5k")]
        {
            assert_eq!(labels(Axis::from_zero(values.iter().copied())), expected);
        }
        for (values, expected) in
            [(&[1e3, 1e5][..], "1k 10k 100k"), (&[0.4, 70.0], "0.1 1 10 100"), (&[1000.0], "1k 10k")]
        {
            assert_eq!(labels(Axis::log(values.iter().copied())), expected);
        }
        let axis = Axis::log([1.0, 100.0].into_iter());
        assert_eq!((axis.place(1.0), axis.place(10.0), axis.place(100.0)), (0.0, 0.5, 1.0));
    }
}

//! Diagrams as SVG.

use core::ops::Range;

use plotters::chart::{ChartBuilder, ChartContext, SeriesLabelPosition};
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Circle, PathElement};
use plotters::prelude::{IntoLogRange, SVGBackend};
use plotters::series::LineSeries;
use plotters::style::{BLACK, Color, Palette, Palette99, WHITE};
use sim::papers::Plot;

/// Width and height.
const SIZE: (u32, u32) = (760, 400);
/// Curves with more points than these have no dots.
const DOTTED: usize = 60;
/// Free space above the highest point, and beside the outermost, as a share of the range.
const MARGIN: f64 = 0.05;

type Chart<'a, 'b, X> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, RangedCoordf64>>;

/// The diagram as an `<svg>`.
pub fn svg(plot: &Plot) -> anyhow::Result<String> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (x, y) = ranges(plot);
    let mut builder = ChartBuilder::on(&area);
    builder.margin(12).x_label_area_size(42).y_label_area_size(72);
    builder.caption(&plot.title, ("sans-serif", 16));
    if plot.logarithmic {
        draw(plot, builder.build_cartesian_2d(x.log_scale(), y)?)?;
    } else {
        draw(plot, builder.build_cartesian_2d(x, y)?)?;
    }
    area.present()?;
    drop(area);
    Ok(text)
}

fn draw<'a, 'b: 'a, X>(plot: &Plot, mut chart: Chart<'a, 'b, X>) -> anyhow::Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(plot.axes.0).y_desc(plot.axes.1).light_line_style(WHITE).draw()?;
    for (index, (name, points)) in plot.curves.iter().enumerate() {
        let all = || points.iter().filter(|point| point.1.median.is_finite());
        let finite = || all().map(|&(x, y)| (x, y.median));
        let color = Palette99::pick(index).to_rgba();
        let style = color.stroke_width(2);
        chart
            .draw_series(LineSeries::new(finite(), style))?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        if points.len() <= DOTTED {
            let dots = finite().map(|point| Circle::new(point, 3, color.filled()));
            chart.draw_series(dots)?;
            // From the least of all seeds to the most.
            let varied = all().filter(|(_, y)| y.least < y.most);
            let bars = varied.map(|&(x, y)| PathElement::new([(x, y.least), (x, y.most)], color));
            chart.draw_series(bars)?;
        }
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8));
    labels.border_style(BLACK).draw()?;
    Ok(())
}

/// What the axes show: all points, and zero beside where it is not logarithmic.
fn ranges(plot: &Plot) -> (Range<f64>, Range<f64>) {
    let points = || plot.curves.iter().flat_map(|(_, points)| points).copied();
    let of = |values: &mut dyn Iterator<Item = f64>| {
        let finite = values.filter(|value| value.is_finite());
        finite.fold((f64::MAX, f64::MIN), |(least, most), v| (least.min(v), most.max(v)))
    };
    let (left, right) = of(&mut points().map(|point| point.0));
    let (bottom, top) = of(&mut points().flat_map(|point| [point.1.least, point.1.most]));
    if left > right {
        return (0.0..1.0, 0.0..1.0);
    }
    let x = match plot.logarithmic {
        true => left / (1.0 + MARGIN)..right * (1.0 + MARGIN),
        false => left.min(0.0)..right.max(left + f64::MIN_POSITIVE) * (1.0 + MARGIN),
    };
    let height = (top - bottom.min(0.0)).max(1e-9);
    (x, bottom.min(0.0)..top.max(0.0) + height * MARGIN)
}

#[cfg(test)]
mod tests {
    use sim::papers::Spread;

    use super::*;

    #[test]
    fn a_diagram_names_its_axes_and_curves() {
        let plot = Plot::new("Title & more", "along", "up")
            .curve("one", [(1.0, 2.0), (10.0, 5.0)])
            .curve("other", [(1.0, f64::NAN)]);
        for plot in [plot.clone(), plot.logarithmic()] {
            let svg = svg(&plot).unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
            for part in ["Title &amp; more", "along", "up", "one", "other"] {
                assert!(svg.contains(part), "{part}: {svg}");
            }
        }
        assert!(svg(&Plot::new("nothing", "x", "y")).is_ok());
        let lines = |most: f64| {
            let spread = Spread { median: 2.0, least: 1.0, most };
            let plot =
                Plot::new("spread", "x", "y").curve("one", [(1.0, spread), (2.0, 9.0.into())]);
            svg(&plot).unwrap().matches("<polyline").count()
        };
        assert_eq!(lines(3.0), lines(1.0) + 1);
    }
}

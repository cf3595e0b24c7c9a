//! HTTP by nginx and curl, plainly and through `longhaul forward`.

use anyhow::{Context, Result};

use super::super::lab::{Bed, Crossing, payload_limit};
use super::super::spread;
use super::super::transport::require;
use super::ride::{believed, judged};

/// The far host sends, so losses are on the way back.
const PATH: &str = "--rate 1gbit --rtt 200ms --loss 0 --loss-back 1% --queue 50ms";
const LOSS: f64 = 1.0;
const SECONDS: u64 = 25;
/// Times plain TCP, by striped TCP.
const TCP_GOAL: f64 = 20.0;
/// Of the payload limit, by UDP.
const UDP_GOAL: f64 = 0.8;

const TOOLS: &[(&str, &str)] =
    &[("nginx", "apt-get install nginx-light"), ("curl", "apt-get install curl")];

/// So many runs of each way, the worst of which count beside plain TCP's median; false when a way misses its
/// goal.
pub fn run(seeds: u64) -> Result<bool> {
    require(TOOLS)?;
    let bed = Bed::new()?;
    bed.fill("file", SECONDS * 125_000_000)?;
    let all = |serve, forward| {
        let runs = (1..=seeds).map(|seed| believed(|| mbps(&bed, serve, forward, seed)));
        let runs = runs.collect::<Result<Vec<_>>>()?;
        let rates: Vec<_> = runs.iter().map(|run| run.0).collect();
        anyhow::Ok((spread(&rates), runs.iter().all(|run| run.1)))
    };
    let ((plain, ..), mut reached) = all("", None)?;
    println!("nginx to curl over 1 Gbit/s, 200 ms, {LOSS}% loss, hosts on CUBIC, {SECONDS} s");
    println!("| way | Mbit/s | goal |");
    println!("|---|---|---|");
    let doubt = if reached { "" } else { "emulator NOT faithful" };
    println!("| plain | {plain:.1} | {doubt} |");
    let udp_goal = UDP_GOAL * payload_limit(LOSS) / 1e6;
    for (way, serve, options, goal) in [
        ("striped TCP", "", "--transport tcp", TCP_GOAL * plain),
        ("striped TCP, CUBIC", "--tcp-cc cubic", "--transport tcp", TCP_GOAL * plain),
        ("UDP", "", "--transport udp", udp_goal),
    ] {
        let ((_, least, _), faithful) = all(serve, Some(options))?;
        reached &= least >= goal && faithful;
        println!("| {way} | {least:.0} | {goal:.0} ({}) |", judged(least >= goal, faithful));
    }
    Ok(reached)
}

/// What curl got in its time, plainly or by a forward with these options; whether the emulator kept up.
fn mbps(bed: &Bed, serve: &str, forward: Option<&str>, seed: u64) -> Result<(f64, bool)> {
    let (binary, key, folder) = (bed.binary().display(), bed.key(), bed.folder().display());
    let (key, source) = (key.display(), bed.source());
    let far = format!(
        "mkdir -p {folder}/nginx; cd {folder}/nginx; cat >conf <<END
daemon off; master_process off; pid pid; error_log log; events {{}} http {{ access_log off;
client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4;
scgi_temp_path t5; sendfile on; server {{ listen 8000; root {source}; }} }}
END
nginx -e log -p $PWD/ -c conf & exec {binary} serve --quiet --no-remember {serve} --key {key} \
--forward 127.0.0.1:8000 --root {source}",
        source = source.display(),
    );
    let (start, url) = match forward {
        None => ("sleep 2".to_owned(), "http://$LONGHAUL_FAR:8000/file"),
        Some(options) => (
            format!(
                "{binary} forward --quiet {options} --key {key} 8080 \
                 lh://$LONGHAUL_FAR/127.0.0.1:8000 >&2 & sleep 2"
            ),
            "http://127.0.0.1:8080/file",
        ),
    };
    let near = format!(
        "{start}; curl -sS -o /dev/null --max-time {SECONDS} \
         -w '{{\"bytes\": %{{size_download}}, \"seconds\": %{{time_total}}}}' {url}; \
         [ -z \"$!\" ] || kill $!"
    );
    let path: Vec<_> = PATH.split(' ').collect();
    let crossing =
        Crossing { path: &path, congestion_control: "cubic", seed: Some(seed), far, near };
    let (seen, report) = crossing.run(bed.build())?;
    let figure = |name: &str| seen[name].as_f64().context("curl told nothing");
    Ok((figure("bytes")? * 8e-6 / figure("seconds")?, report["faithful"] == true))
}

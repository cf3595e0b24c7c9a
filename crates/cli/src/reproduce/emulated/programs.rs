//! What paper 2's hosts run: iperf3, and curl with nginx or vsftpd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use emulator::Namespace;
use serde_json::Value;
use sim::papers::{Crossed, Crossing, Pair, Task};
use tempfile::TempDir;

use super::hosts::{Hosts, SERVER};
use super::{Bench, Running, succeed};

/// What a server takes until it listens.
const SETTLE: Duration = Duration::from_millis(500);
/// No program takes longer, in seconds.
const PATIENCE: &str = "600";
/// The first port of iperf3.
const PORT: u16 = 5201;

/// Carries it out.
pub fn run(bench: &Bench, crossing: &Crossing, pair: &Pair, seed: u64) -> anyhow::Result<Crossed> {
    let hosts = Hosts::new(bench, crossing, pair, seed)?;
    let mut crossed = match pair.task {
        Task::Send(connections, late) => {
            let (before, counted) = (crossing.before, bench.counted(crossing));
            let seconds = Seconds { before: before.as_secs(), counted: counted.as_secs() };
            let ends = [&hosts.client, &hosts.server];
            let begun = SETTLE + late + before;
            thread::scope(|scope| {
                let look = || {
                    thread::sleep(begun);
                    hosts.passed()
                };
                let look = scope.spawn(look);
                let rates = send(ends, connections, late, seconds)?;
                let looks = [look.join().map_err(|_| anyhow!("the lab"))?, hosts.passed()];
                let mut crossed = Crossed { rates, ..Crossed::default() };
                crossed.count(looks.each_ref().map(|(at, counters)| (*at, counters)));
                anyhow::Ok(crossed)
            })?
        }
        Task::Web(size) => {
            let site = folder(bench, size)?;
            let _server = web_server(&hosts.server, site.path())?;
            fetched(&hosts.client, &format!("http://{SERVER}/{size}"), size)?
        }
        Task::Ftp(size) => {
            let size = size / u64::from(bench.part());
            let root = folder(bench, size)?;
            let _server = ftp_server(&hosts.server, root.path())?;
            fetched(&hosts.client, &format!("ftp://{SERVER}/{size}"), size)?
        }
    };
    crossed.fault = hosts.fault();
    Ok(crossed)
}

/// How long connections last.
#[derive(Clone, Copy)]
struct Seconds {
    before: u64,
    counted: u64,
}

/// Bit/s of each connection while it is counted, of which the last may start late.
fn send(
    ends: [&Namespace; 2],
    connections: usize,
    late: Duration,
    seconds: Seconds,
) -> anyhow::Result<Vec<f64>> {
    if late.is_zero() {
        return iperf(ends, PORT, connections, seconds);
    }
    // All end together, and the last seconds of all are counted.
    let longer = Seconds { before: seconds.before + late.as_secs(), ..seconds };
    thread::scope(|scope| {
        let first = scope.spawn(|| iperf(ends, PORT, connections - 1, longer));
        thread::sleep(late);
        let last = iperf(ends, PORT + 1, 1, seconds);
        let mut rates = first.join().map_err(|_| anyhow!("iperf3"))??;
        rates.extend(last?);
        Ok(rates)
    })
}

/// The same of connections that start together, as the server of iperf3 counts them.
fn iperf(
    [client, server]: [&Namespace; 2],
    port: u16,
    connections: usize,
    seconds: Seconds,
) -> anyhow::Result<Vec<f64>> {
    let mut serve = server.command("iperf3");
    serve.args(["-s", "-J", "-p", &port.to_string()]);
    let _server = settled(serve)?;
    let mut client = limited(client, "iperf3");
    client.args(["-c", &SERVER.to_string(), "-J", "--get-server-output", "-p", &port.to_string()]);
    let time = seconds.before + seconds.counted;
    client.args(["-P", &connections.to_string(), "-t", &time.to_string()]);
    let report: Value = serde_json::from_slice(&succeed(client)?)?;
    let intervals = report["server_output_json"]["intervals"].as_array();
    let intervals = intervals.with_context(|| format!("iperf3 told nothing: {report}"))?;
    let rate =
        |interval: &Value, stream: usize| interval["streams"][stream]["bits_per_second"].as_f64();
    let mean = |stream: usize| {
        let rates: Vec<f64> = intervals.iter().filter_map(|it| rate(it, stream)).collect();
        mean(&rates, seconds.counted as usize)
    };
    Ok((0..connections).map(mean).collect())
}

/// The mean of the last seconds that are whole.
fn mean(rates: &[f64], counted: usize) -> f64 {
    let rates = &rates[..rates.len().saturating_sub(1)];
    let rates = &rates[rates.len().saturating_sub(counted - 1)..];
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

/// A program that is ended when it takes far too long, or `timeout` is gone, which ends with us.
fn limited(host: &Namespace, program: &str) -> Command {
    let mut command = host.command("timeout");
    command.args(["-k", "5", PATIENCE, "setpriv", "--pdeathsig", "KILL", program]);
    command
}

/// What curl needs to fetch so much.
fn fetched(client: &Namespace, url: &str, size: u64) -> anyhow::Result<Crossed> {
    let mut curl = limited(client, "curl");
    curl.args(["-s", "-S", "-o", "/dev/null", "-w", "%{time_total} %{size_download}", url]);
    let text = String::from_utf8(succeed(curl)?)?;
    let (seconds, got) = text.split_once(' ').context("curl told nothing")?;
    ensure!(got.parse::<f64>()? as u64 == size, "curl got {got} bytes of {size}");
    let seconds: f64 = seconds.parse()?;
    Ok(Crossed { rates: vec![size as f64 * 8.0 / seconds], seconds, ..Crossed::default() })
}

/// A folder that everybody may read, with a file of that many bytes and the same name.
fn folder(bench: &Bench, size: u64) -> anyhow::Result<TempDir> {
    let folder = tempfile::tempdir_in(bench.folder.path())?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    fs::File::create(folder.path().join(size.to_string()))?.set_len(size)?;
    Ok(folder)
}

/// nginx, at port 80, for what is in a folder.
fn web_server(host: &Namespace, root: &Path) -> anyhow::Result<Running> {
    let shown = root.display();
    let text = format!(
        "daemon off; master_process off; user root; pid {shown}/nginx.pid; error_log stderr crit;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; \
         client_body_temp_path {shown}/nginx-client_body; \
         proxy_temp_path {shown}/nginx-proxy; fastcgi_temp_path {shown}/nginx-fastcgi; \
         uwsgi_temp_path {shown}/nginx-uwsgi; scgi_temp_path {shown}/nginx-scgi; \
         server {{ listen {SERVER}:80; root {shown}; }} }}\n"
    );
    let settings = root.join("nginx.conf");
    fs::write(&settings, text)?;
    let mut command = host.command("nginx");
    command.args(["-e", "stderr", "-c"]).arg(settings);
    settled(command)
}

/// vsftpd for everybody, as a user whose home there is everywhere: it goes there before it looks for its root.
fn ftp_server(host: &Namespace, root: &Path) -> anyhow::Result<Running> {
    let empty = root.join("empty");
    fs::create_dir(&empty)?;
    let text = format!(
        "listen=YES\nbackground=NO\nlisten_address={SERVER}\nanonymous_enable=YES\n\
         no_anon_password=YES\nanon_root={}\nsecure_chroot_dir={}\nftp_username=daemon\n\
         seccomp_sandbox=NO\nxferlog_enable=NO\n",
        root.display(),
        empty.display()
    );
    let settings = root.join("vsftpd.conf");
    fs::write(&settings, text)?;
    let mut command = host.command("vsftpd");
    command.arg(settings);
    settled(command)
}

/// A server that has had time to listen, and runs.
fn settled(mut command: Command) -> anyhow::Result<Running> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let name = command.get_program().to_string_lossy().into_owned();
    let mut server = Running::start(command)?;
    thread::sleep(SETTLE);
    server.check().with_context(|| format!("{name} did not start"))?;
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_second_is_not_whole_and_the_first_ones_do_not_count() {
        assert!((mean(&[1.0, 9.0, 5.0, 7.0, 2.0], 3) - 6.0).abs() < 1e-9);
        assert!(mean(&[], 3).abs() < 1e-9);
    }
}

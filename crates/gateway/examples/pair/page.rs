//! How long a browser takes for pages of a stock web server, with our gateways and without any.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::bench::{Way, median};
use crate::contender::{Contender, Process, find};
use crate::figures::Goal;
use crate::world::{CLIENT, SERVER, World};

/// Objects of the large page, and of the small one, and their sizes.
const LARGE: (usize, usize) = (100, 100_000);
const SMALL: (usize, usize) = (5, 10_000);
/// Visits to each.
const VISITS: usize = 3;
/// New links get addresses for a while, at each of which a browser begins again.
const SETTLE: Duration = Duration::from_secs(3);
/// A picture of one pixel (GIF), which may have anything behind it.
const PICTURE: &[u8] =
    b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0!\xf9\x04\x01\0\0\0\0,\0\0\0\0\
                         \x01\0\x01\0\0\x02\x02D\x01\0;";

/// Prints a line for each page; false if ours gains too little, or costs too much. Without the
/// programs it says so and measures nothing.
///
/// # Errors
/// One of the programs does not run.
pub fn run(program: &Path, way: Way) -> io::Result<bool> {
    if let Some(missing) = ["chromium", "nginx"].into_iter().find(|it| find(it).is_none()) {
        println!("\nSKIPPED: pages in a browser: no {missing} (apt-get install chromium nginx)");
        return Ok(true);
    }
    let (none, ours) = (Contender::none(), Contender::longhaul(program));
    println!("\nChromium, nginx, HTTP/1.1: seconds until a page was loaded, median of {VISITS}");
    let compare = |(objects, size), way: Way| {
        let [without, with] =
            [visit(&none, (objects, size), way)?, visit(&ours, (objects, size), way)?];
        println!(
            "  {objects} objects of {size} bytes, {}% loss: {without:.2} alone, {with:.2} with longhaul",
            way.loss
        );
        Ok::<_, io::Error>(with / without)
    };
    let large = compare(LARGE, Way { loses_answers: true, ..way })?;
    let small = compare(SMALL, Way { loss: 0.0, ..way })?;
    let goals = [
        Goal { what: "the large page at least 3 times as fast", holds: large <= 1.0 / 3.0 },
        Goal { what: "the small page at most 5% slower", holds: small <= 1.05 },
    ];
    Ok(goals.iter().fold(true, |all, goal| goal.tell() & all))
}

/// Seconds until a page of so many objects was loaded, the median of some visits.
fn visit(contender: &Contender, (objects, size): (usize, usize), way: Way) -> io::Result<f64> {
    let (_lab, world) = way.start()?;
    let site = site(objects, size)?;
    let _server = web_server(&world, site.path())?;
    let _running = contender.start(&world)?;
    std::thread::sleep(SETTLE);
    let times: io::Result<Vec<_>> = (0..VISITS).map(|_| load(&world)).collect();
    Ok(median(times?))
}

/// A folder with a page.
fn site(objects: usize, size: usize) -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let mut page = String::from(
        "<!doctype html><script>onload = () => document.body.dataset.took = performance.now()</script>",
    );
    let object = [PICTURE, &vec![0; size.saturating_sub(PICTURE.len())]].concat();
    for number in 0..objects {
        fs::write(folder.path().join(format!("{number}.gif")), &object)?;
        page += &format!("<img src=\"{number}.gif\">");
    }
    fs::write(folder.path().join("index.html"), page)?;
    Ok(folder)
}

/// nginx on the server, at port 80, for what is in a folder.
///
/// # Errors
/// It does not run.
pub fn web_server(world: &World, folder: &Path) -> io::Result<Process> {
    let settings = format!(
        "daemon off; master_process off; user root; pid {0}/nginx.pid; error_log stderr crit;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; \
         client_body_temp_path {0}/nginx-client_body; \
         proxy_temp_path {0}/nginx-proxy; fastcgi_temp_path {0}/nginx-fastcgi; \
         uwsgi_temp_path {0}/nginx-uwsgi; scgi_temp_path {0}/nginx-scgi; \
         types {{ text/html html; image/gif gif; }}\n\
         server {{ listen 10.2.0.2:80; root {0}; }} }}\n",
        folder.display()
    );
    fs::write(folder.join("nginx.conf"), settings)?;
    let mut server =
        Process::start(world, SERVER, "exec nginx -e stderr -c $FILES/nginx.conf", folder)?;
    std::thread::sleep(Duration::from_millis(300));
    server.check()?;
    Ok(server)
}

/// Loads the page with nothing in the browser's cache; gives its own measure in seconds.
fn load(world: &World) -> io::Result<f64> {
    let home = tempfile::tempdir()?;
    let mut browser = Command::new("timeout");
    browser.args(["300", "chromium", "--headless", "--no-sandbox", "--disable-gpu"]);
    browser.args(["--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking"]);
    browser.arg(format!("--user-data-dir={}", home.path().display())).env("HOME", home.path());
    browser.args(["--dump-dom", "http://10.2.0.2/"]);
    let output = world.on(CLIENT, || browser.output())?;
    let page = String::from_utf8_lossy(&output.stdout);
    let took = page.split("data-took=\"").nth(1).and_then(|rest| rest.split('"').next());
    let took = took.and_then(|took| took.parse::<f64>().ok());
    let told =
        || io::Error::other(format!("chromium: {}", String::from_utf8_lossy(&output.stderr)));
    took.map(|took| took / 1e3).ok_or_else(told)
}

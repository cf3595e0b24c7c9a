//! What hosts are called, for people who look: asked of this host's resolver (`/etc/hosts`, DNS) in
//! threads of its own, only of what is shown, and remembered for a while.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use net::clock;
use tokio::sync::watch;
use tokio::time::timeout;
use units::Instant;

use super::Status;

/// How long a name holds, and that there is none.
const LASTS: Duration = Duration::from_secs(600);
/// Hosts that are remembered.
const MAX_KNOWN: usize = 4096;
/// Hosts that wait to be asked for, and how many are asked for at a time.
const MAX_WAITING: usize = 256;
const AT_A_TIME: usize = 4;
/// How long who looks waits for names: those that come later are there when he looks again.
const PATIENCE: Duration = Duration::from_millis(300);
/// The longest name of a host (RFC 1035, 2.3.4).
const MAX_NAME: usize = 255;

type Lookup = fn(IpAddr) -> Option<String>;

/// Shared by all who show.
#[derive(Clone)]
pub(crate) struct Names(Option<Arc<Resolver>>);

struct Resolver {
    known: Arc<Mutex<HashMap<IpAddr, Known>>>,
    wanted: SyncSender<IpAddr>,
    /// Changes with each answer.
    news: watch::Receiver<()>,
}

#[derive(Clone)]
enum Known {
    /// It is being asked for.
    Soon,
    Answered(Option<String>, Instant),
}

impl Names {
    /// Asks for none.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Asks this host's resolver.
    pub(crate) fn of_resolver() -> Self {
        Self::asking(|host| dns_lookup::lookup_addr(&host).ok())
    }

    fn asking(lookup: Lookup) -> Self {
        let (wanted, hosts) = sync_channel(MAX_WAITING);
        let (tell, news) = watch::channel(());
        let (hosts, tell) = (Arc::new(Mutex::new(hosts)), Arc::new(tell));
        let known = Arc::new(Mutex::new(HashMap::new()));
        for _ in 0..AT_A_TIME {
            // Not the runtime's, which would wait at its end for a resolver that does not answer.
            let (known, hosts, tell) = (known.clone(), hosts.clone(), tell.clone());
            thread::spawn(move || {
                while let Some(host) = next(&hosts) {
                    let name = lookup(host).filter(|name| is_name(name));
                    lock(&known).insert(host, Known::Answered(name, clock::now()));
                    tell.send_replace(());
                }
            });
        }
        Self(Some(Arc::new(Resolver { known, wanted, news })))
    }

    /// Writes them to a picture.
    pub(crate) async fn fill(&self, status: &mut Status) {
        let Self(Some(resolver)) = self else { return };
        let shown = status.connections.iter().map(|it| [&it.client, &it.server]);
        let shown = shown.chain(status.missed.iter().map(|it| [&it.client, &it.server]));
        let names = resolver.of(shown.flatten().filter_map(|it| host(it)).collect()).await;
        let name = |of: &String| names.get(&host(of)?).cloned();
        for it in &mut status.connections {
            (it.client_name, it.server_name) = (name(&it.client), name(&it.server));
        }
        for it in &mut status.missed {
            (it.client_name, it.server_name) = (name(&it.client), name(&it.server));
        }
    }
}

impl Resolver {
    /// Those that are known, or are within a moment.
    async fn of(&self, hosts: BTreeSet<IpAddr>) -> HashMap<IpAddr, String> {
        let mut news = self.news.clone();
        self.want(&hosts);
        let all = async { while self.lacks(&hosts) && news.changed().await.is_ok() {} };
        let _ = timeout(PATIENCE, all).await;
        let known = lock(&self.known);
        let named = |host: IpAddr| match known.get(&host) {
            Some(Known::Answered(Some(name), _)) => Some((host, name.clone())),
            _ => None,
        };
        hosts.into_iter().filter_map(named).collect()
    }

    /// Asks for those that are not known, as far as there is room.
    fn want(&self, hosts: &BTreeSet<IpAddr>) {
        let now = clock::now();
        let mut known = lock(&self.known);
        known.retain(|_, it| !matches!(it, Known::Answered(_, at) if now.since(*at) > LASTS));
        for host in hosts {
            let room = known.len() < MAX_KNOWN;
            if room && !known.contains_key(host) && self.wanted.try_send(*host).is_ok() {
                known.insert(*host, Known::Soon);
            }
        }
    }

    /// Whether one of them is being asked for.
    fn lacks(&self, hosts: &BTreeSet<IpAddr>) -> bool {
        let known = lock(&self.known);
        hosts.iter().any(|host| matches!(known.get(host), Some(Known::Soon)))
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// None once nobody can ask any more.
fn next(hosts: &Mutex<Receiver<IpAddr>>) -> Option<IpAddr> {
    lock(hosts).recv().ok()
}

/// Whose name is to be found; none if a name stands there already.
fn host(shown: &str) -> Option<IpAddr> {
    shown.parse().ok().map(|it: SocketAddr| it.ip().to_canonical())
}

/// Anybody may call his host what he likes: what is no host's name is not shown.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sight::{Connection, Missed};

    fn status() -> Status {
        let [client, other] = ["192.0.2.1:5000", "192.0.2.9:1"].map(str::to_owned);
        let server = "[2001:db8::1]:80".to_owned();
        let asked = "example.org:80".to_owned();
        let connection = Connection { client, server, ..Connection::default() };
        let missed = Missed { client: other, server: asked, ..Missed::default() };
        Status { connections: vec![connection], missed: vec![missed], ..Status::default() }
    }

    #[tokio::test]
    async fn what_is_shown_gets_the_names_that_there_are() {
        let names = Names::asking(|host| match host.to_string().as_str() {
            "192.0.2.1" => Some("client.example".into()),
            "2001:db8::1" => Some("evil\u{1b}[2J".into()),
            _ => None,
        });
        let mut status = status();
        // They may take longer to come than anybody waits who looks.
        while status.connections[0].client_name.is_none() {
            names.fill(&mut status).await;
        }
        let named = &status.connections[0];
        assert_eq!(named.client_name.as_deref(), Some("client.example"));
        assert_eq!(named.server_name, None);
        assert_eq!((&status.missed[0].client_name, &status.missed[0].server_name), (&None, &None));
        assert!(
            status.to_string().contains("192.0.2.1:5000 (client.example) -> [2001:db8::1]:80,")
        );
    }

    #[tokio::test]
    async fn nobody_waits_long_for_a_resolver_that_is_silent() {
        let names = Names::asking(|_| {
            thread::park();
            None
        });
        let mut shown = status();
        names.fill(&mut shown).await;
        assert_eq!(shown.connections[0].client_name, None);
        let Names(Some(resolver)) = &names else { panic!("no resolver") };
        let hosts = (0..u32::from(u16::MAX)).map(|host| IpAddr::from(host.to_be_bytes())).collect();
        resolver.want(&hosts);
        let known = lock(&resolver.known).len();
        assert!((MAX_WAITING..=MAX_WAITING + 2 * AT_A_TIME).contains(&known), "{known}");
    }

    #[tokio::test]
    async fn who_wants_no_names_gets_none() {
        let mut shown = status();
        Names::none().fill(&mut shown).await;
        assert_eq!(shown.connections[0].client_name, None);
    }
}

//! How FTP writes addresses: PORT and PASV (RFC 959), EPRT and EPSV (RFC 2428), MPRT (paper 3,
//! section 2.2) and its passive twin MPSV.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The family number of IPv4 in EPRT and EPSV.
pub const IPV4: u8 = 1;
/// And of IPv6.
pub const IPV6: u8 = 2;

/// The number of an address' family.
pub fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { IPV4 } else { IPV6 }
}

/// Another port of the same host: an IPv6 address of a link says nothing without its scope.
pub fn with_port(mut host: SocketAddr, port: u16) -> SocketAddr {
    host.set_port(port);
    host
}

/// One address and its ports: a data connection goes to each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The host.
    pub address: IpAddr,
    /// At least one; a port may stand there more than once.
    pub ports: Vec<u16>,
}

impl Ends {
    /// As socket addresses.
    pub fn sockets(&self) -> impl Iterator<Item = SocketAddr> {
        self.ports.iter().map(|&port| SocketAddr::new(self.address, port))
    }
}

/// `h1,h2,h3,h4,p1,p2`, as in PORT.
pub fn read_port(text: &str) -> Option<Ends> {
    let numbers = bytes(text)?;
    let [a, b, c, d, high, low] = numbers[..] else { return None };
    let port = u16::from_be_bytes([high, low]);
    Some(Ends { address: Ipv4Addr::new(a, b, c, d).into(), ports: vec![port] })
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    text.split(',').map(|number| number.trim().parse().ok()).collect()
}

/// The same for an address of IPv4; `None` for one of IPv6.
pub fn write_port(address: SocketAddr) -> Option<String> {
    let IpAddr::V4(ip) = address.ip() else { return None };
    let [high, low] = address.port().to_be_bytes();
    Some(format!("{},{high},{low}", ip.to_string().replace('.', ",")))
}

/// `|2|::1|5282|` with any delimiter, as in EPRT; ports beyond the first as MPRT has them.
pub fn read_eprt(text: &str, most: usize) -> Option<Ends> {
    let delimiter = text.chars().next().filter(|c| ('!'..='~').contains(c))?;
    let parts: Vec<&str> = text.split(delimiter).collect();
    let ["", number, address, port, ""] = parts[..] else { return None };
    let address: IpAddr = address.parse().ok()?;
    let ports = read_ports(port, most)?;
    (number.parse() == Ok(family(address))).then_some(Ends { address, ports })
}

/// Whether what should be an argument of EPRT names a family of addresses that RFC 2428 does not.
pub fn names_unknown_family(text: &str) -> bool {
    let mut rest = text.chars();
    let delimiter = rest.next().filter(|c| c.is_ascii_punctuation());
    let number = delimiter.and_then(|delimiter| rest.as_str().split_once(delimiter));
    let number = number.and_then(|(number, _)| number.parse::<u64>().ok());
    number.is_some_and(|number| ![IPV4, IPV6].map(u64::from).contains(&number))
}

/// The argument of EPRT for ends; ports beyond the first as MPRT has them.
pub fn write_eprt(ends: &Ends) -> String {
    format!("|{}|{}|{}|", family(ends.address), ends.address, write_ports(&ends.ports))
}

/// `h1,h2,h3,h4,port1,...,portn` of paper 3, each port one number; or the form of EPRT, which has
/// room for IPv6.
pub fn read_mprt(text: &str, most: usize) -> Option<Ends> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return read_eprt(text, most);
    }
    let mut parts = text.splitn(5, ',');
    let mut byte = || parts.next()?.trim().parse::<u8>().ok();
    let address = Ipv4Addr::new(byte()?, byte()?, byte()?, byte()?);
    Some(Ends { address: address.into(), ports: read_ports(parts.next()?, most)? })
}

/// The argument of MPRT for ends.
pub fn write_mprt(ends: &Ends) -> String {
    match ends.address {
        IpAddr::V4(ip) => {
            format!("{},{}", ip.to_string().replace('.', ","), write_ports(&ends.ports))
        }
        IpAddr::V6(_) => write_eprt(ends),
    }
}

fn read_ports(text: &str, most: usize) -> Option<Vec<u16>> {
    let port = |text: &str| text.trim().parse().ok().filter(|&port: &u16| port != 0);
    let ports: Vec<u16> = text.split(',').take(most + 1).map(port).collect::<Option<_>>()?;
    (ports.len() <= most).then_some(ports)
}

fn write_ports(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}

/// The ports in `Entering ... (|||p1,p2,...|)`, the answer to EPSV and MPSV.
pub fn read_epsv_reply(text: &str, most: usize) -> Option<Vec<u16>> {
    let inside = text.rsplit_once('(')?.1.split_once(')')?.0;
    let delimiter = inside.chars().next()?;
    let parts: Vec<&str> = inside.split(delimiter).collect();
    let ["", _, _, ports, ""] = parts[..] else { return None };
    read_ports(ports, most)
}

/// What stands in the parentheses.
pub fn write_epsv_reply(ports: &[u16]) -> String {
    format!("(|||{}|)", write_ports(ports))
}

/// The port in the answer to PASV; the address there is not believed. Some servers leave out the
/// parentheses (RFC 1123, section 4.1.2.6).
pub fn read_pasv_reply(text: &str) -> Option<u16> {
    let digits = |c: char| c.is_ascii_digit() || c == ',';
    let numbers = text.split(|c| !digits(c)).find(|part| part.matches(',').count() == 5)?;
    read_port(numbers).map(|ends| ends.ports[0]).filter(|&port| port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(address: &str, ports: &[u16]) -> Option<Ends> {
        Some(Ends { address: address.parse().unwrap(), ports: ports.to_vec() })
    }

    #[test]
    fn the_forms_of_the_standards() {
        assert_eq!(read_port("10,0,0,1,19,137"), ends("10.0.0.1", &[5001]));
        assert_eq!(read_eprt("|2|::1|5282|", 1), ends("::1", &[5282]));
        assert_eq!(read_eprt("!1!10.0.0.1!80!", 1), ends("10.0.0.1", &[80]));
        assert_eq!(read_mprt("10,0,0,1,5001,5002", 4), ends("10.0.0.1", &[5001, 5002]));
        assert_eq!(read_mprt("|2|::1|5001,5002|", 4), ends("::1", &[5001, 5002]));
        assert_eq!(read_epsv_reply("Entering (|||6446|)", 1), Some(vec![6446]));
        assert_eq!(read_pasv_reply("Entering Passive Mode (1,2,3,4,1,2)."), Some(258));
        assert_eq!(read_pasv_reply("ok 1,2,3,4,1,2"), Some(258));
    }

    #[test]
    fn what_is_written_is_read() {
        let six = ends("fd77::2", &[1, 65535, 1]).unwrap();
        assert_eq!(read_mprt(&write_mprt(&six), 3).as_ref(), Some(&six));
        let four = ends("192.0.2.1", &[99, 100]).unwrap();
        assert_eq!(read_mprt(&write_mprt(&four), 2).as_ref(), Some(&four));
        assert_eq!(read_epsv_reply(&write_epsv_reply(&[7, 8]), 2), Some(vec![7, 8]));
        assert_eq!(write_port("1.2.3.4:258".parse().unwrap()).unwrap(), "1,2,3,4,1,2");
    }

    #[test]
    fn nonsense_and_too_many_ports_are_refused() {
        for bad in ["", "1,2,3,4", "1,2,3,4,5", "1,2,3,256,1,1", "1,2,3,4,5,6,7", "a,b,c,d,e,f"] {
            assert_eq!(read_port(bad), None, "{bad}");
        }
        for bad in
            ["", "|", "|1|::1|5|", "|2|::1|0|", "|2|::1|70000|", "|2|::1|5", "|2|x|5|", "é2é::1é5é"]
        {
            assert_eq!(read_eprt(bad, 1), None, "{bad}");
        }
        for (text, unknown) in
            [("|3|x|5|", true), ("!0!", true), ("|2|x|5|", false), ("|a|", false)]
        {
            assert_eq!(names_unknown_family(text), unknown, "{text}");
        }
        assert_eq!(read_mprt("1,2,3,4,5,6,7", 2), None);
        assert_eq!(read_mprt("1,2,3,4", 2), None);
        assert_eq!(read_epsv_reply("(|||1,2|)", 1), None);
    }
}

//! The commands: the one table of verbs, with what each takes and when it may come.

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as on the wire")]
pub enum Verb {
    User,
    Pass,
    Acct,
    Rein,
    Quit,
    Auth,
    Pbsz,
    Prot,
    Feat,
    Opts,
    Clnt,
    Syst,
    Help,
    Noop,
    Site,
    Pwd,
    Cwd,
    Cdup,
    Mkd,
    Rmd,
    Dele,
    Rnfr,
    Rnto,
    Size,
    Mdtm,
    Mfmt,
    Hash,
    Xcrc,
    Xmd5,
    Xsha1,
    Xsha256,
    Xsha512,
    Stat,
    Mlst,
    Type,
    Mode,
    Stru,
    Rest,
    Allo,
    Port,
    Pasv,
    Eprt,
    Epsv,
    Mult,
    Mprt,
    Mpsv,
    Retr,
    Stor,
    Stou,
    Appe,
    List,
    Nlst,
    Mlsd,
    Abor,
}

/// What a command wants behind its verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Nothing; what comes all the same is passed over.
    None,
    /// It goes without.
    Optional,
    /// It does not.
    Required,
}

/// When a command may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// To anybody.
    Anyone,
    /// To a user who has logged in.
    User,
    /// To a user who may write.
    Writer,
    /// To anybody, even while another command is carried out.
    Anytime,
}

/// A row of the table.
#[derive(Debug)]
pub struct Rule {
    /// As on the wire; another spelling of the same verb is another row.
    pub name: &'static str,
    /// What it means.
    pub verb: Verb,
    /// What follows it.
    pub argument: Argument,
    /// When it may come.
    pub when: When,
}

const fn rule(name: &'static str, verb: Verb, argument: Argument, when: When) -> Rule {
    Rule { name, verb, argument, when }
}

/// Every command there is. X forms of directory commands: RFC 1123, section 4.1.3.1.
pub const RULES: &[Rule] = {
    use Argument::{None, Optional, Required};
    use Verb::*;
    use When::{Anyone, Anytime, User as Login, Writer};
    &[
        rule("USER", User, Required, Anyone),
        rule("PASS", Pass, Optional, Anyone),
        rule("ACCT", Acct, Required, Anyone),
        rule("REIN", Rein, None, Anyone),
        rule("QUIT", Quit, None, Anyone),
        rule("AUTH", Auth, Required, Anyone),
        rule("PBSZ", Pbsz, Required, Anyone),
        rule("PROT", Prot, Required, Anyone),
        rule("FEAT", Feat, None, Anyone),
        rule("OPTS", Opts, Required, Anyone),
        rule("CLNT", Clnt, Optional, Anyone),
        rule("SYST", Syst, None, Anyone),
        rule("HELP", Help, Optional, Anyone),
        rule("NOOP", Noop, None, Anytime),
        rule("ABOR", Abor, None, Anytime),
        rule("STAT", Stat, Optional, Anytime),
        rule("SITE", Site, Required, Login),
        rule("PWD", Pwd, None, Login),
        rule("XPWD", Pwd, None, Login),
        rule("CWD", Cwd, Optional, Login),
        rule("XCWD", Cwd, Optional, Login),
        rule("CDUP", Cdup, None, Login),
        rule("XCUP", Cdup, None, Login),
        rule("MKD", Mkd, Required, Writer),
        rule("XMKD", Mkd, Required, Writer),
        rule("RMD", Rmd, Required, Writer),
        rule("XRMD", Rmd, Required, Writer),
        rule("DELE", Dele, Required, Writer),
        rule("RNFR", Rnfr, Required, Writer),
        rule("RNTO", Rnto, Required, Writer),
        rule("SIZE", Size, Required, Login),
        rule("MDTM", Mdtm, Required, Login),
        rule("MFMT", Mfmt, Required, Writer),
        rule("HASH", Hash, Required, Login),
        rule("XCRC", Xcrc, Required, Login),
        rule("XMD5", Xmd5, Required, Login),
        rule("XSHA1", Xsha1, Required, Login),
        rule("XSHA256", Xsha256, Required, Login),
        rule("XSHA512", Xsha512, Required, Login),
        rule("MLST", Mlst, Optional, Login),
        rule("TYPE", Type, Required, Login),
        rule("MODE", Mode, Required, Login),
        rule("STRU", Stru, Required, Login),
        rule("REST", Rest, Required, Login),
        rule("ALLO", Allo, Optional, Login),
        rule("PORT", Port, Required, Login),
        rule("PASV", Pasv, None, Login),
        rule("EPRT", Eprt, Required, Login),
        rule("EPSV", Epsv, Optional, Login),
        rule("MULT", Mult, Optional, Login),
        rule("MPRT", Mprt, Required, Login),
        rule("MPSV", Mpsv, Optional, Login),
        rule("RETR", Retr, Required, Login),
        rule("STOR", Stor, Required, Writer),
        rule("STOU", Stou, Optional, Writer),
        rule("APPE", Appe, Required, Writer),
        rule("LIST", List, Optional, Login),
        rule("NLST", Nlst, Optional, Login),
        rule("MLSD", Mlsd, Optional, Login),
    ]
};

/// Commands of RFC 959 and 2228 that are known and not done.
const UNIMPLEMENTED: [&str; 6] = ["ADAT", "CCC", "CONF", "ENC", "MIC", "SMNT"];

/// Whether a line that is no command here is one of those.
pub fn is_unimplemented(line: &[u8]) -> bool {
    let verb = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    UNIMPLEMENTED.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(verb))
}

/// Splits a line: the row of its verb, if there is one, and what follows the first blank. A path
/// may begin or end with blanks, so no others are taken away.
pub fn parse(line: &[u8]) -> (Option<&'static Rule>, &[u8]) {
    let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
    let argument = line.get(end + 1..).unwrap_or_default();
    (RULES.iter().find(|rule| rule.name.as_bytes().eq_ignore_ascii_case(&line[..end])), argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_found_in_any_case_and_arguments_kept_whole() {
        let (rule, argument) = parse(b"reTR  two blanks ");
        assert_eq!((rule.unwrap().verb, argument), (Verb::Retr, &b" two blanks "[..]));
        assert_eq!(parse(b"PWD").1, b"");
        assert!(parse(b"GET / HTTP/1.1").0.is_none() && parse(b"").0.is_none());
        assert!(is_unimplemented(b"ccc") && is_unimplemented(b"MIC x") && !is_unimplemented(b""));
    }

    #[test]
    fn no_name_stands_there_twice() {
        for (at, rule) in RULES.iter().enumerate() {
            assert!(RULES[..at].iter().all(|other| other.name != rule.name), "{}", rule.name);
        }
    }
}

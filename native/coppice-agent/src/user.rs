//! The user that a program runs as, from the guest's own `/etc/passwd` and `/etc/group`.

use std::ffi::CString;
use std::fs;

use crate::failure::Coded;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UserError {
    #[error("User '{0}' is not in the guest's /etc/passwd")]
    NoUser(String),
    #[error("Group '{0}' is not in the guest's /etc/group")]
    NoGroup(String),
}

impl Coded for UserError {
    fn code(&self) -> &'static str {
        "EXEC_USER_UNKNOWN"
    }
}

/// The kernel refuses more.
const MAX_GROUPS: usize = 65_536;

/// Below this each of the two ids means "leave it as it is" to the kernel.
const MAX_ID: u32 = u32::MAX - 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// HOME, USER and LOGNAME.
    pub env: Vec<(&'static str, CString)>,
}

/// `name` or `uid`, each with `:group` or `:gid` where it is not to be the user's own. The supplementary groups are those
/// of a user that is in `/etc/passwd`, and none where the group is given. A number that is not there has a group of the
/// same number and `/` as its home.
pub fn find(wanted: &str) -> Result<User, UserError> {
    // An image may have neither file; then only numbers are known.
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let group = fs::read_to_string("/etc/group").unwrap_or_default();
    find_in(wanted, &passwd, &group)
}

struct Entry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

fn find_in(wanted: &str, passwd: &str, group: &str) -> Result<User, UserError> {
    let (user, given_group) = match wanted.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (wanted, None),
    };
    let entry = entries(passwd).find(|entry| entry.name == user).or_else(|| {
        let uid = id(user)?;
        entries(passwd).find(|entry| entry.uid == uid)
    });
    let (uid, own_gid) = match (&entry, id(user)) {
        (Some(entry), _) => (entry.uid, entry.gid),
        (None, Some(uid)) => (uid, uid),
        (None, None) => return Err(UserError::NoUser(user.to_owned())),
    };
    let gid = match given_group {
        None => own_gid,
        Some(name) => group_id(name, group).ok_or_else(|| UserError::NoGroup(name.to_owned()))?,
    };
    let groups = match (&entry, given_group) {
        (Some(entry), None) => groups_of(entry.name, gid, group),
        _ => Vec::new(),
    };
    let name = entry.as_ref().map_or(user, |entry| entry.name);
    let home = entry.as_ref().map_or("/", |entry| entry.home);
    let env = [("HOME", home), ("USER", name), ("LOGNAME", name)];
    let env = env
        .into_iter()
        .filter_map(|(key, value)| Some((key, CString::new(value).ok()?)));
    Ok(User {
        uid,
        gid,
        groups,
        env: env.collect(),
    })
}

fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id <= MAX_ID)
}

fn entries(passwd: &str) -> impl Iterator<Item = Entry<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let (uid, gid) = (id(fields.nth(1)?)?, id(fields.next()?)?);
        let home = fields.nth(1)?;
        Some(Entry { name, uid, gid, home })
    })
}

/// Name, number and members of each group.
fn groups(group: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let gid = id(fields.nth(1)?)?;
        Some((name, gid, fields.next().unwrap_or_default()))
    })
}

fn group_id(wanted: &str, group: &str) -> Option<u32> {
    let named = groups(group).find(|(name, ..)| *name == wanted);
    named.map(|(_, gid, _)| gid).or_else(|| id(wanted))
}

fn groups_of(user: &str, own: u32, group: &str) -> Vec<u32> {
    let member = groups(group).filter(|(.., members)| members.split(',').any(|member| member == user));
    let mut found = vec![own];
    for (_, gid, _) in member {
        if !found.contains(&gid) && found.len() < MAX_GROUPS {
            found.push(gid);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1001:Ann:/home/ann:/bin/sh\nbroken\n";
    const GROUP: &str = "root:x:0:\nann:x:1001:\naudio:x:29:bob,ann\nvideo:x:44:bob\ndisk:x:6:ann\n";

    fn find(wanted: &str) -> Result<User, UserError> {
        find_in(wanted, PASSWD, GROUP)
    }

    #[test]
    fn user_by_name_or_number_has_its_groups_and_home() {
        for wanted in ["ann", "1000"] {
            let user = find(wanted).unwrap();
            assert_eq!((user.uid, user.gid), (1000, 1001));
            assert_eq!(user.groups, [1001, 29, 6]);
            let env = [
                ("HOME", c"/home/ann".into()),
                ("USER", c"ann".into()),
                ("LOGNAME", c"ann".into()),
            ];
            assert_eq!(user.env, env);
        }
    }

    #[test]
    fn user_with_a_group_has_that_one_alone() {
        for wanted in ["ann:video", "1000:44"] {
            let user = find(wanted).unwrap();
            assert_eq!((user.uid, user.gid, user.groups), (1000, 44, vec![]));
        }
    }

    #[test]
    fn number_that_nobody_has_is_taken_as_it_is() {
        let user = find("4242").unwrap();
        assert_eq!((user.uid, user.gid, user.groups), (4242, 4242, vec![]));
        assert_eq!(user.env[0], ("HOME", c"/".into()));
    }

    #[test]
    fn name_that_nobody_has_is_refused() {
        assert_eq!(find("bob"), Err(UserError::NoUser("bob".into())));
        assert_eq!(find("ann:staff"), Err(UserError::NoGroup("staff".into())));
        assert_eq!(find("4294967295"), Err(UserError::NoUser("4294967295".into())));
    }
}

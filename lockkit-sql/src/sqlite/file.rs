//! The file behind a path: which one it is now, where it lies, and that it has no second path.

use std::path::{Path, PathBuf};

use lockkit_core::{Error, Result};

/// Which file a path names: a file that was deleted and created anew is another one, though
/// connections to the old one go on working, with nobody else in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    /// The file that `path` names now; `None` if there is none (or it cannot be seen).
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;

        std::fs::metadata(path).ok().map(|file| Self(file.dev(), file.ino()))
    }

    /// Open files cannot be deleted there.
    #[cfg(not(unix))]
    pub(super) fn of(path: &Path) -> Option<Self> {
        path.exists().then_some(Self(0, 0))
    }
}

/// Refuses a path on a file system that other machines may use too: neither SQLite's locks nor
/// the clock since boot reach that far.
pub(super) async fn check_file_system(path: &Path) -> Result<()> {
    let place = path.to_owned();
    // A dead file server must stall a spare thread, not the one that renews locks.
    let found = tokio::task::spawn_blocking(move || platform::shared_file_system(&place)).await;
    let Ok(Some(name)) = found else { return Ok(()) };
    Err(Error::configuration(format!(
        "`{}` lies on a file system of the kind {name}, which other machines may use at the same \
         time; locks in a SQLite file are for the processes of one machine. If no other machine \
         uses this file, say so with `any_filesystem=true`",
        path.display()
    )))
}

/// The directory in which a file will lie that is still to be created: a symbolic link to nowhere
/// decides as well.
#[allow(dead_code)] // used where the kind of a file system can be told
fn future_directory(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path.pop();
        path.push(target);
    }
    path.pop();
    path
}

/// As many links in a row as Linux follows.
const LINKS: usize = 40;

/// Refuses a file that can be reached by another path as well. SQLite names the log and its index
/// after the path, so each path would have a log of its own, and neither would see the claims of
/// the other.
pub(super) async fn check_single_path(path: &Path) -> Result<()> {
    let place = path.to_owned();
    let found = tokio::task::spawn_blocking(move || second_path(&place)).await;
    let Ok(Some(why)) = found else { return Ok(()) };
    Err(Error::configuration(format!(
        "`{}` {why}: SQLite keeps files beside it that are named after its path, and locks taken \
         through another path would not exclude those taken through this one",
        path.display()
    )))
}

/// Refuses files that this process may not write, before SQLite makes files of its own beside them:
/// those would belong to this process's user, and keep out everybody else.
///
/// Asks the system, and opens nothing: closing a file that SQLite has open too would drop SQLite's
/// locks on it.
#[cfg(unix)]
pub(super) fn check_access(path: &Path) -> Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    use rustix::io::Errno;

    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    for ending in ["", "-wal", "-shm"] {
        let mut name = path.clone().into_os_string();
        name.push(ending);
        let both = Access::READ_OK | Access::WRITE_OK;
        if let Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) =
            accessat(CWD, &name, both, AtFlags::EACCESS)
        {
            let file = Path::new(&name).display();
            return Err(Error::permission(format!(
                "`{file}` can only be read, or not even that: the file, its directory or the file \
                 system does not let this process's user write"
            )));
        }
    }
    Ok(())
}

#[cfg(not(unix))]
pub(super) fn check_access(_: &Path) -> Result<()> {
    Ok(())
}

/// Why there may be another path to the file, and what to do about it. A file that is still to be
/// created has one path only.
fn second_path(path: &Path) -> Option<&'static str> {
    if has_hard_links(path) {
        return Some("has more than one hard link; remove the others (a symbolic link is fine)");
    }
    platform::is_mount_point(path).then_some(
        "is mounted by itself; mount the directory that it lies in, never the file alone",
    )
}

#[cfg(unix)]
fn has_hard_links(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.nlink() > 1)
}

#[cfg(not(unix))]
fn has_hard_links(_: &Path) -> bool {
    false
}

#[cfg(target_os = "linux")]
mod platform {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

    /// Whether something is mounted on just this file.
    pub(super) fn is_mount_point(path: &Path) -> bool {
        if path.is_dir() {
            return false;
        }
        match statx(CWD, path, AtFlags::empty(), StatxFlags::empty()) {
            Ok(file) if file.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
                file.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
            }
            // Kernels before 5.8, and sandboxes that forbid the call.
            _ => is_listed(path),
        }
    }

    fn is_listed(path: &Path) -> bool {
        let Ok(path) = path.canonicalize() else { return false };
        let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        mount_points(&table).any(|point| point == path)
    }

    /// The fifth word of each line of `/proc/self/mountinfo`.
    pub(super) fn mount_points(table: &[u8]) -> impl Iterator<Item = PathBuf> {
        let words = table
            .split(|byte| *byte == b'\n')
            .filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
        words.map(|word| PathBuf::from(unescape(word)))
    }

    /// White space and backslashes are written there as a backslash and three octal digits.
    fn unescape(word: &[u8]) -> OsString {
        let mut bytes = Vec::with_capacity(word.len());
        let mut rest = word;
        while let [first, after @ ..] = rest {
            let digits = after.get(..3).filter(|_| *first == b'\\');
            let byte = digits
                .and_then(|digits| std::ffi::OsStr::from_bytes(digits).to_str())
                .and_then(|digits| u8::from_str_radix(digits, 8).ok());
            bytes.push(byte.unwrap_or(*first));
            rest = if byte.is_some() { &after[3..] } else { after };
        }
        OsString::from_vec(bytes)
    }

    /// The kind of file system that `path` lies on, if it is one that machines share.
    pub(super) fn shared_file_system(path: &Path) -> Option<&'static str> {
        // Perhaps the file is still to be created.
        let found =
            rustix::fs::statfs(path).or_else(|_| rustix::fs::statfs(super::future_directory(path)));
        // Opening the file says better than this could what is wrong with the path.
        kind(found.ok()?.f_type as u64)
    }

    /// By the numbers in `statfs(2)`. FUSE is among them because it may be anything: sshfs,
    /// virtiofs, a folder shared with a virtual machine's host.
    pub(super) fn kind(magic: u64) -> Option<&'static str> {
        Some(match magic & 0xffff_ffff {
            0x6969 => "NFS",
            0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB/CIFS",
            0x0102_1997 => "9P",
            0x6573_5546 => "FUSE",
            0x00c3_6400 => "CephFS",
            0x5346_414f | 0x6b41_4653 => "AFS",
            0x7375_7245 => "Coda",
            0x564c => "NCP",
            0x0116_1970 => "GFS2",
            0x7461_636f => "OCFS2",
            0x0bd0_0bd0 => "Lustre",
            0x4750_4653 => "GPFS",
            0x1983_0326 => "BeeGFS",
            0x786f_4256 => "VirtualBox shared folder",
            0xbacb_acbc => "VMware shared folder",
            0x7c7c_6673 => "Parallels shared folder",
            _ => return None,
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::path::Path;

    pub(super) fn is_mount_point(_: &Path) -> bool {
        false
    }

    pub(super) fn shared_file_system(_: &Path) -> Option<&'static str> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn shared_file_systems_are_known_by_number() {
        assert_eq!(platform::kind(0x6969), Some("NFS"));
        assert_eq!(platform::kind(0xff53_4d42), Some("SMB/CIFS"));
        // On some machines the number is a signed one of 32 bits.
        assert_eq!(platform::kind(0xff53_4d42_u32 as i32 as u64), Some("SMB/CIFS"));
        assert_eq!(platform::kind(0x6573_5546), Some("FUSE"));
        for local in [0xef53, 0x0102_1994, 0x9123_683e, 0x5846_5342, 0x794c_7630] {
            assert_eq!(platform::kind(local), None);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn mount_points_are_read_from_the_table() {
        let table = b"36 35 98:0 /a /mnt/a\\040b\\134c rw - ext3 /dev/root rw\n\n1 2 0:1 / / rw\n\
            3 2 0:1 / /x\\ rw";
        let points: Vec<_> = platform::mount_points(table).collect();
        assert_eq!(points, ["/mnt/a b\\c", "/", "/x\\"].map(std::path::PathBuf::from));
    }

    #[tokio::test]
    async fn a_local_directory_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        check_file_system(&dir.path().join("not there yet.db")).await.unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_file_that_is_still_to_be_created_is_followed() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        assert_eq!(future_directory(&first), dir.path());
        symlink("second", &first).unwrap();
        assert_eq!(future_directory(&first), dir.path());
        symlink("/elsewhere/locks.db", &second).unwrap();
        assert_eq!(future_directory(&first), Path::new("/elsewhere"));
        std::fs::remove_file(&second).unwrap();
        symlink("first", &second).unwrap();
        future_directory(&first); // comes to an end
    }

    #[cfg(unix)]
    #[test]
    fn a_new_file_under_an_old_name_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        assert_eq!(FileId::of(&path), None);
        std::fs::write(&path, "1").unwrap();
        let old = FileId::of(&path).unwrap();
        assert_eq!(FileId::of(&path), Some(old));
        std::fs::rename(&path, dir.path().join("b")).unwrap();
        std::fs::write(&path, "2").unwrap();
        assert_ne!(FileId::of(&path), Some(old));
    }
}

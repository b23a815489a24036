//! The file behind a path: which one it is now, and where it lies.

use std::path::Path;

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

#[cfg(target_os = "linux")]
mod platform {
    use std::path::Path;

    /// The kind of file system that `path` lies on, if it is one that machines share.
    pub(super) fn shared_file_system(path: &Path) -> Option<&'static str> {
        let found = rustix::fs::statfs(path).or_else(|_| {
            // The file is still to be created.
            rustix::fs::statfs(path.parent().unwrap_or(path))
        });
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

    #[tokio::test]
    async fn a_local_directory_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        check_file_system(&dir.path().join("not there yet.db")).await.unwrap();
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

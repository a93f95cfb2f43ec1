package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/view"
)

// probeKernel reports whether this user can make the namespaces of a jail, and
// the version of Landlock; 0 = there is none.
func probeKernel(ctx context.Context) (namespaces bool, landlock int) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "version")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	namespaces = cmd.Run() == nil
	// landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION)
	if v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno == 0 {
		landlock = int(v)
	}
	return namespaces, landlock
}

// probeDataDir looks at the file system of the data directory.
func probeDataDir(h *view.Health, dir string) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return
	}
	h.FreeBytes = int64(st.Bavail) * int64(st.Bsize)
	h.Filesystem = filesystemName(int64(st.Type))
	var err error
	if h.Reflink, err = canClone(dir); err != nil {
		h.Unwritable = err.Error()
	}
}

func filesystemName(magic int64) string {
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs",
		unix.F2FS_SUPER_MAGIC: "f2fs", unix.FUSE_SUPER_MAGIC: "fuse", 0x2fc12fc1: "zfs", 0xca451a4e: "bcachefs",
	}
	if n, ok := names[magic]; ok {
		return n
	}
	return fmt.Sprintf("0x%x", magic)
}

// canClone tries to share the blocks of one small file with another. An error
// says why nothing can be written there.
func canClone(dir string) (bool, error) {
	tmp := filepath.Join(dir, "probe-"+agents.NewID(time.Now()))
	if err := fsx.Mkdir(tmp, 0o700); err != nil {
		return false, err
	}
	defer func() { _ = fsx.RemoveAll(tmp) }()
	from := filepath.Join(tmp, "from")
	if err := fsx.WriteFile(from, make([]byte, 4096), 0o600); err != nil {
		return false, err
	}
	src, err := os.Open(from)
	if err != nil {
		return false, err
	}
	defer src.Close()
	dst, err := fsx.Create(filepath.Join(tmp, "to"), 0o600)
	if err != nil {
		return false, err
	}
	defer dst.Close()
	return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil, nil
}

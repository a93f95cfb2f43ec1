package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// Quota limits the space that payloads take. A zero is no limit.
type Quota struct {
	PerPlan        int64   // bytes of one plan
	Total          int64   // bytes of all plans together
	MinFreePercent float64 // percent of the file system that must stay free
}

// warnAt is the share of a quota at which Check warns.
const warnAt = 0.8

// Verdict is how a plan's payloads stand against a Quota.
type Verdict struct {
	Warn        bool    // 80 % of a limit are used; also true when Full
	Full        bool    // a limit is reached: nothing more may be written
	Reason      string  // a sentence that names the limit; "" = neither
	PlanBytes   int64   // what the plan uses
	TotalBytes  int64   // what all plans use; 0 when no limit asks for it
	FreePercent float64 // of the file system; 0 when no limit asks for it
}

// Check compares what is used now with q.
func (s *Store) Check(planID string, q Quota) (Verdict, error) {
	if err := valid("plan", planID); err != nil {
		return Verdict{}, err
	}
	var v Verdict
	m, err := s.measure(planID, q.Total > 0)
	if err != nil {
		return Verdict{}, err
	}
	v.PlanBytes = m.own
	v.limit(v.PlanBytes, q.PerPlan, "the checkpoints of this plan")
	if q.Total > 0 {
		v.TotalBytes = m.own + m.others
		v.limit(v.TotalBytes, q.Total, "the checkpoints of all plans")
	}
	if q.MinFreePercent > 0 {
		if err := s.checkFree(&v, q.MinFreePercent); err != nil {
			return Verdict{}, err
		}
	}
	return v, nil
}

// limit notes a limit that is reached, or nearly; the first one gives the reason.
func (v *Verdict) limit(used, quota int64, what string) {
	if quota <= 0 || float64(used) < warnAt*float64(quota) {
		return
	}
	reason := fmt.Sprintf("%s use %s of %s (%d %%)", what, inUnits(used), inUnits(quota), int64(100*float64(used)/float64(quota)))
	v.reach(used >= quota, reason)
}

func (v *Verdict) reach(full bool, reason string) {
	if v.Reason == "" || full && !v.Full {
		v.Reason = reason
	}
	v.Warn = true
	v.Full = v.Full || full
}

func (s *Store) checkFree(v *Verdict, least float64) error {
	space, err := fsx.SpaceOf(s.existing())
	if err != nil {
		return fmt.Errorf("free space of the checkpoint store: %w", err)
	}
	v.FreePercent = space.FreePercent()
	if v.FreePercent < least/warnAt {
		v.reach(v.FreePercent < least, fmt.Sprintf("the file system of the checkpoint store has %s (%.1f %%) free; %.1f %% must stay free",
			inUnits(space.Free), v.FreePercent, least))
	}
	return nil
}

// existing returns the store's directory, or the nearest one above it that is
// there.
func (s *Store) existing() string {
	for dir := s.dir; ; dir = filepath.Dir(dir) {
		if id, err := fsx.Identify(dir); err == nil && id.Kind != fsx.KindNone || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

// Usage returns the bytes that a plan's payloads and object stores hold.
func (s *Store) Usage(planID string) (int64, error) {
	if err := valid("plan", planID); err != nil {
		return 0, err
	}
	n, err := treeSize(filepath.Join(s.dir, planID))
	if err != nil {
		return 0, fmt.Errorf("measure checkpoints of plan %s: %w", planID, err)
	}
	return n, nil
}

// TotalUsage returns the bytes that everything in the store holds.
func (s *Store) TotalUsage() (int64, error) {
	n, err := treeSize(s.dir)
	if err != nil {
		return 0, fmt.Errorf("measure checkpoints: %w", err)
	}
	return n, nil
}

// measure is what a plan and all others use: measured by a walk, and from then
// on kept by what this Store adds and frees.
type measure struct {
	own, others int64
	withOthers  bool
	at          time.Time
}

// remeasure is for how long a measure is believed: other processes write, too.
const remeasure = time.Minute

// measure returns what a plan uses, and on demand what all others do.
func (s *Store) measure(planID string, withOthers bool) (measure, error) {
	s.mu.Lock()
	known := s.measures[planID]
	if known != nil && time.Since(known.at) < remeasure && (known.withOthers || !withOthers) {
		defer s.mu.Unlock()
		return *known, nil
	}
	s.mu.Unlock()
	m := measure{withOthers: withOthers, at: time.Now()}
	var err error
	if m.own, err = s.Usage(planID); err != nil {
		return m, err
	}
	if withOthers {
		if m.others, err = s.othersUse(planID); err != nil {
			return m, fmt.Errorf("measure checkpoints of other plans: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.measures == nil {
		s.measures = map[string]*measure{}
	}
	s.measures[planID] = &m
	s.noteUsage(planID, m.own)
	return m, nil
}

// usageName is the folder of notes of what each plan uses: who works on a plan
// measures it and keeps its note, so that nobody else has to.
const usageName = "usage"

func (s *Store) usageNote(planID string) string { return filepath.Join(s.dir, usageName, planID) }

// noteUsage notes what a plan uses. A note that cannot be written is none, which
// costs others a walk.
func (s *Store) noteUsage(planID string, bytes int64) {
	note := s.usageNote(planID)
	if !exists(filepath.Join(s.dir, planID)) {
		return // it has nothing, and needs no note
	}
	err := fsx.MkdirAll(filepath.Dir(note), 0o700)
	if err == nil {
		err = fsx.Note(note, strconv.AppendInt(nil, bytes, 10), 0o600)
	}
	if err != nil {
		s.dropNote(planID)
	}
}

// othersUse sums what all is here but a plan's: by the notes of plans, and by
// walks of what has none.
func (s *Store) othersUse(planID string) (sum int64, err error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		if e.Name() == planID || e.Name() == usageName {
			continue
		}
		note, nerr := os.ReadFile(s.usageNote(e.Name()))
		n, perr := strconv.ParseInt(string(note), 10, 64)
		if nerr != nil || perr != nil {
			if n, err = treeSize(filepath.Join(s.dir, e.Name())); err != nil {
				return 0, err
			}
			if agents.ValidID(e.Name()) {
				s.noteUsage(e.Name(), n)
			}
		}
		sum += n
	}
	return sum, err
}

// grown notes that a plan uses so many bytes more, or less.
func (s *Store) grown(planID string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.measures[planID]; m != nil {
		m.own = max(0, m.own+bytes)
		s.noteUsage(planID, m.own)
		return
	}
	s.dropNote(planID)
}

// dropNote removes a plan's note, if it has one. That it fails leaves one that
// is too old until somebody works on the plan.
func (s *Store) dropNote(planID string) {
	if note := s.usageNote(planID); exists(note) {
		_ = fsx.Remove(note)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// unmeasured forgets what a plan uses.
func (s *Store) unmeasured(planID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.measures, planID)
	s.dropNote(planID)
}

// treeSize sums the sizes of the files below dir. What goes while it looks is
// not counted; a dir that is not there has none.
func treeSize(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var fi fs.FileInfo
			if fi, err = d.Info(); err == nil {
				sum += fi.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return sum, err
}

// inUnits returns bytes as people read them.
func inUnits(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, names := float64(n)/unit, "KMGTPE"
	for v >= unit && len(names) > 1 {
		v, names = v/unit, names[1:]
	}
	return fmt.Sprintf("%.1f %ciB", v, names[0])
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/checkpoint"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/config"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/copyonwrite"
	"github.com/cleveragents/agents/sandbox/gitworktree"
	"github.com/cleveragents/agents/sandbox/none"
	"github.com/cleveragents/agents/tool"
	"github.com/cleveragents/agents/tool/builtin"
)

// session is everything that a command works with.
type session struct {
	app        *app
	config     *config.Config
	settings   engine.Settings
	store      *metastore.Store
	strategies *sandbox.Registry
	tools      *tool.Registry
	engine     *engine.Engine
}

// mode says whether a command changes something.
type mode int

const (
	reading  mode = iota
	changing      // first ends what a killed process left half-done
)

// open puts the parts together. This is the only place that does. A second
// call returns the same session.
func (a *app) open(ctx context.Context, m mode) (*session, error) {
	if a.session == nil {
		s, err := a.wire(ctx)
		if err != nil {
			return nil, err
		}
		a.session = s
	}
	if m == changing {
		if err := a.session.engine.Start(ctx); err != nil {
			return nil, err
		}
	}
	return a.session, nil
}

func (a *app) wire(ctx context.Context) (*session, error) {
	conf, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	for _, n := range conf.Notices {
		a.notify(n)
	}
	s := &session{app: a, config: conf}
	if s.settings, err = conf.Settings(); err != nil {
		return nil, err
	}
	if err := config.MakeDataDir(conf.DataDir); err != nil {
		return nil, err
	}
	if s.strategies, err = strategies(); err != nil {
		return nil, err
	}
	if s.tools, err = tool.NewRegistry(builtin.All()...); err != nil {
		return nil, err
	}
	if s.store, err = metastore.Open(ctx, databaseFile(conf.DataDir), metastore.Options{}); err != nil {
		return nil, err
	}
	payloads, err := a.payloads(s)
	if err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	s.engine, err = engine.New(engine.Config{
		Store: s.store, Checkpoints: payloads, Strategies: s.strategies, Tools: s.tools,
		Settings: s.settings, Notify: a.inform,
	})
	if err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	return s, nil
}

// payloads opens the store of checkpoint payloads. While checkpoints are off
// it is there for those that were made before, and a store that cannot be
// opened hinders nobody.
func (a *app) payloads(s *session) (*checkpoint.Store, error) {
	store, err := checkpoint.Open(s.config.CheckpointDir())
	if err != nil && !s.settings.Checkpoints {
		return nil, nil
	}
	return store, err
}

// strategies are those of this build.
func strategies() (*sandbox.Registry, error) {
	return sandbox.NewRegistry(gitworktree.New(), copyonwrite.New(), none.New())
}

func (s *session) close() {
	if err := s.store.Close(); err != nil {
		s.app.notify(fmt.Sprintf("close the metadata store: %v", err))
	}
}

// strategy says which strategy a resource gets.
func (s *session) strategy(r agents.Resource) agents.StrategyName {
	name, _ := r.EffectiveStrategy(s.settings.Strategy)
	return name
}

func (a *app) loadConfig() (*config.Config, error) {
	dataDir, err := config.DataDir(a.dataDir, os.Getenv)
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	return config.Load(config.Options{DataDir: dataDir, WorkDir: dir, LookupEnv: os.LookupEnv})
}

func databaseFile(dataDir string) string { return filepath.Join(dataDir, "agents.db") }

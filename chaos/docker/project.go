package docker

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Project is a compose file at work, under a name of its own.
type Project struct {
	// Engine runs it.
	Engine *Engine
	// Dir is where the compose file is, Name what containers, networks and volumes
	// are called by.
	Dir, Name string
	// Files are the compose files, each on top of those before; none: Dir's own.
	Files []string
	// Profiles are started too, and Env is set on top of this process's.
	Profiles, Env []string
}

// Command runs compose, for at most three minutes, and returns what it prints.
func (p *Project) Command(ctx context.Context, args ...string) (string, error) {
	return p.run(ctx, append(p.compose(), args...)...)
}

// Script runs a script with how it has to call compose in COMPOSE.
func (p *Project) Script(ctx context.Context, script string, args ...string) (string, error) {
	return p.run(ctx, append([]string{"env", "COMPOSE=" + strings.Join(p.compose(), " "), script}, args...)...)
}

func (p *Project) compose() (all []string) {
	all = append(all, p.Engine.compose...)
	all = append(all, "-p", p.Name, "--project-directory", p.Dir)
	for _, f := range p.Files {
		all = append(all, "-f", f)
	}
	for _, f := range p.Profiles {
		all = append(all, "--profile", f)
	}
	return all
}

func (p *Project) run(ctx context.Context, all ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Dir, cmd.Env = p.Dir, append(os.Environ(), p.Env...)
	var out []byte
	err := tied(cmd, func() (err error) { out, err = cmd.CombinedOutput(); return err })
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(all, " "), err, out)
	}
	return string(out), err
}

// ID is the container of a service, which need not run.
func (p *Project) ID(ctx context.Context, service string) (string, error) {
	out, err := p.Engine.Output(ctx, "ps", "-aq", "--no-trunc", "--filter", "label=com.docker.compose.project="+p.Name,
		"--filter", "label=com.docker.compose.service="+service)
	if err == nil && len(strings.Fields(out)) != 1 {
		err = fmt.Errorf("%s has the containers %q: one is needed", service, out)
	}
	return strings.TrimSpace(out), err
}

// Down removes the containers, networks and volumes of the project.
func (p *Project) Down(ctx context.Context) error {
	// One that is paused would not be stopped.
	if out, err := p.Engine.Output(ctx, "ps", "-q", "--filter", "status=paused", "--filter",
		"label=com.docker.compose.project="+p.Name); err == nil {
		for _, id := range strings.Fields(out) {
			_, _ = p.Engine.Run(ctx, "unpause", id) // if it stays, down says so
		}
	}
	_, err := p.Command(ctx, "down", "-v", "--remove-orphans", "--timeout", "1")
	return err
}

// Ports returns so many ports of loopback that nobody has. Whoever is faster may
// take one before it is used.
func Ports(ctx context.Context, n int) ([]string, error) {
	var out []string
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // not before all are found
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		out = append(out, port)
	}
	return out, nil
}

// Guard removes what projects, images and builds of a run leave behind if the process is
// killed before it can do so itself: it is a shell that waits for the end of its
// input. Release it when all is gone.
type Guard struct {
	in  io.WriteCloser
	cmd *exec.Cmd
}

// guarding removes a project by its name, $1, and then what is to be forgotten.
const guarding = `read -r released && exit 0
of="label=com.docker.compose.project=$1"; shift
for c in $(docker ps -q --filter "$of" --filter status=paused); do docker unpause "$c"; done
for c in $(docker ps -aq --filter "$of"); do docker rm -fv "$c"; done
for n in $(docker network ls -q --filter "$of"); do docker network rm "$n"; done
for v in $(docker volume ls -q --filter "$of"); do docker volume rm "$v"; done
` + forgetting

// Watch has a project, images, and what a build has left whose log is given removed,
// should this process be killed.
func Watch(project, log string, images ...string) (*Guard, error) {
	g := &Guard{cmd: exec.CommandContext(context.Background(), "sh",
		append([]string{"-c", guarding, "sh", project, log}, images...)...)}
	apart(g.cmd)
	var err error
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return g, g.cmd.Start()
}

// Release ends the guard, which removes nothing.
func (g *Guard) Release() error {
	if _, err := io.WriteString(g.in, "released\n"); err != nil {
		return err
	}
	return g.cmd.Wait()
}

package resp

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Commands that clients need to connect.

func doPing(_ context.Context, c *conn, args []string) {
	if len(args) == 1 {
		c.reply.bulk(args[0])
	} else {
		c.reply.simple("PONG")
	}
	c.served("PING", "OK")
}

func doEcho(_ context.Context, c *conn, args []string) {
	c.reply.bulk(args[0])
	c.served("ECHO", "OK")
}

func doSelect(_ context.Context, c *conn, args []string) {
	if args[0] != "0" {
		c.fail("SELECT", "ERR", "there is only database 0")
		return
	}
	c.reply.ok()
	c.served("SELECT", "OK")
}

// redisVersion is the version of Redis whose protocol and commands these are.
const redisVersion = "7.0.0"

func doInfo(_ context.Context, c *conn, _ []string) {
	c.reply.bulk("# Server\r\nredis_version:" + redisVersion +
		"\r\nredis_mode:standalone\r\nserver_name:weir\r\nweir_version:" +
		c.of.options.Version + "\r\n# Clients\r\nconnected_clients:" + strconv.Itoa(c.of.conns.Open()) +
		"\r\n# Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:1\r\n")
	c.served("INFO", "OK")
}

func doCommand(_ context.Context, c *conn, args []string) {
	sub := ""
	if len(args) > 0 {
		sub = strings.ToUpper(args[0])
	}
	switch sub {
	case "":
		names := slices.Sorted(maps.Keys(c.of.commands))
		c.reply.array(len(names))
		for _, name := range names {
			describe(c, c.of.commands[name])
		}
	case "COUNT":
		c.reply.integer(int64(len(c.of.commands)))
	case "INFO":
		c.reply.array(len(args) - 1)
		for _, name := range args[1:] {
			if k := c.of.find(name); k != nil {
				describe(c, k)
			} else {
				c.reply.null()
			}
		}
	case "DOCS":
		c.reply.mapping(0)
	default:
		c.fail("COMMAND", "ERR", "give COMMAND [COUNT | DOCS | INFO <name> ...]")
		return
	}
	c.served("COMMAND", "OK")
}

// describe appends what COMMAND tells of a command: name, arity, flags, and where its keys
// are.
func describe(c *conn, k *command) {
	arity := int64(k.least + 1)
	if k.most != k.least {
		arity = -arity
	}
	c.reply.array(6)
	c.reply.bulk(strings.ToLower(k.name))
	c.reply.integer(arity)
	c.reply.array(1)
	c.reply.simple("fast")
	c.reply.integer(int64(k.key))
	c.reply.integer(int64(k.key))
	c.reply.integer(int64(min(k.key, 1)))
}

func doClient(_ context.Context, c *conn, args []string) {
	switch sub := strings.ToUpper(args[0]); {
	case sub == "SETNAME" && len(args) == 2:
		if err := checkName(args[1]); err != nil {
			c.fail("CLIENT", "ERR", err.Error())
			return
		}
		c.name = strings.Clone(args[1])
		c.reply.ok()
	case sub == "SETINFO" && len(args) == 3:
		c.reply.ok() // it is not kept
	case sub == "ID" && len(args) == 1:
		c.reply.integer(c.id)
	case sub == "GETNAME" && len(args) == 1 && c.name != "":
		c.reply.bulk(c.name)
	case sub == "GETNAME" && len(args) == 1:
		c.reply.null()
	default:
		c.fail("CLIENT", "ERR", "give CLIENT SETNAME <name>, SETINFO <attribute> <value>, GETNAME or ID")
		return
	}
	c.served("CLIENT", "OK")
}

// maxName is the longest name of a connection, in bytes. It is kept as long as the connection.
const maxName = 256

// checkName returns what is wrong with a name for a connection. An empty one takes the name away.
func checkName(name string) error {
	if len(name) > maxName {
		return commandError(fmt.Sprintf("the name has %d bytes: give at most %d", len(name), maxName))
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' }) {
		return commandError(fmt.Sprintf("the name is %.40q: give it without spaces, and in ASCII", name))
	}
	return nil
}

// errCluster is what CLUSTER is answered otherwise.
const errCluster = "give CLUSTER SLOTS, NODES, INFO or MYID: any member takes any key"

// doCluster answers clients of a Redis Cluster, for which the member that they have reached has all slots: any
// member takes any key.
func doCluster(_ context.Context, c *conn, args []string) {
	address := c.LocalAddr().String()
	host, port, err := net.SplitHostPort(address)
	n, _ := strconv.ParseInt(port, 10, 64) // 0 if it has none
	sum := sha1.Sum([]byte(address))       //nolint:gosec // names of nodes in Redis are as long
	id := hex.EncodeToString(sum[:])
	sub := strings.ToUpper(args[0])
	if len(args) != 1 || err != nil {
		sub = ""
	}
	switch sub {
	case "SLOTS":
		c.reply.array(1)
		c.reply.array(3)
		c.reply.integer(0)
		c.reply.integer(16383)
		c.reply.array(2)
		c.reply.bulk(host)
		c.reply.integer(n)
	case "NODES":
		c.reply.bulk(id + " " + host + ":" + port + "@0 myself,master - 0 0 1 connected 0-16383\n")
	case "INFO":
		c.reply.bulk("cluster_enabled:1\r\ncluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n" +
			"cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\n")
	case "MYID":
		c.reply.bulk(id)
	default:
		c.fail("CLUSTER", "ERR", errCluster)
		return
	}
	c.served("CLUSTER", "OK")
}

// doReadOnly answers READONLY and READWRITE, with which clients of a Redis Cluster open connections if they may read
// from replicas. Any member answers anything.
func doReadOnly(_ context.Context, c *conn, _ []string) {
	c.reply.ok()
	c.served("READONLY", "OK")
}

// hello answers HELLO [version [AUTH user password] [SETNAME name]].
func doHello(ctx context.Context, c *conn, args []string) {
	resp3, name := c.reply.resp3, c.name
	if len(args) > 0 {
		switch args[0] {
		case "2":
			resp3 = false
		case "3":
			resp3 = true
		default:
			c.fail("HELLO", "NOPROTO", "unsupported protocol version: give 2 or 3")
			return
		}
		args = args[1:]
	}
	for len(args) > 0 {
		switch sub := strings.ToUpper(args[0]); {
		case sub == "AUTH" && len(args) >= 3:
			if !c.login(ctx, "HELLO", args[2]) {
				return
			}
			args = args[3:]
		case sub == "SETNAME" && len(args) >= 2:
			if err := checkName(args[1]); err != nil {
				c.fail("HELLO", "ERR", err.Error())
				return
			}
			name, args = strings.Clone(args[1]), args[2:]
		default:
			c.fail("HELLO", "ERR", fmt.Sprintf("syntax error in HELLO option %.40q", args[0]))
			return
		}
	}
	if c.caller.err != nil {
		c.refused("HELLO", c.caller.err)
		return
	}
	c.reply.resp3, c.name = resp3, name
	version := int64(2)
	if resp3 {
		version = 3
	}
	c.reply.mapping(7)
	c.reply.bulk("server")
	c.reply.bulk("weir")
	c.reply.bulk("version")
	c.reply.bulk(redisVersion)
	c.reply.bulk("proto")
	c.reply.integer(version)
	c.reply.bulk("id")
	c.reply.integer(c.id)
	c.reply.bulk("mode")
	c.reply.bulk("standalone")
	c.reply.bulk("role")
	c.reply.bulk("master")
	c.reply.bulk("modules")
	c.reply.array(0)
	c.served("HELLO", "OK")
}

// auth answers AUTH [user] token.
func doAuth(ctx context.Context, c *conn, args []string) {
	if c.login(ctx, "AUTH", args[len(args)-1]) {
		c.reply.ok()
		c.served("AUTH", "OK")
	}
}

func doQuit(_ context.Context, c *conn, _ []string) {
	c.reply.ok()
	c.ending = true
	c.served("QUIT", "OK")
}

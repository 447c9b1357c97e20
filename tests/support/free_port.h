// Ports for programs that must be told one before they listen.
#ifndef DDPRUN_TESTS_SUPPORT_FREE_PORT_H_
#define DDPRUN_TESTS_SUPPORT_FREE_PORT_H_

namespace ddprun::testing {

// A port that nobody listens on and that no caller on this machine gets again while this program
// runs. A bound socket holds it, and no second one can be bound there; but who sets SO_REUSEADDR,
// as ddprun, etcd and PyTorch do, can listen there. It lies below the ephemeral range, where no
// connection has its own end.
int FreePort();
// The same of one port: whether it was free, and is held from now on.
bool TakePort(int port);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_FREE_PORT_H_

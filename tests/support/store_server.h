// The store of workers, started.
#ifndef DDPRUN_TESTS_SUPPORT_STORE_SERVER_H_
#define DDPRUN_TESTS_SUPPORT_STORE_SERVER_H_

#include <memory>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/store/store_server.h"

namespace ddprun::testing {

// A failure fails the running case.
std::unique_ptr<rendezvous::StoreServer> StartStoreServer(
    const rendezvous::StoreServer::Options& options = {}, const Clock& clock = SteadyClock());

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_STORE_SERVER_H_

// What a process group asks of the communicator that it owns.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_GROUP_COMMUNICATOR_H_
#define DDPRUN_WORKER_RUNTIME_COMM_GROUP_COMMUNICATOR_H_

#include "ddp/communicator.h"

namespace ddp::internal {

class GroupCommunicator : public Communicator {
 public:
  // Tells the peers that this rank goes in order, once nothing is under way. Later calls fail.
  virtual void Leave() = 0;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_GROUP_COMMUNICATOR_H_

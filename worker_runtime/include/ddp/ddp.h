// The whole library.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_DDP_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DDP_H_

#include "ddp/checkpoint.h"
#include "ddp/comm_hook.h"
#include "ddp/communicator.h"
#include "ddp/data_parallel.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_sampler.h"
#include "ddp/dtype.h"
#include "ddp/dynamic_library.h"
#include "ddp/gpu.h"
#include "ddp/process_group.h"
#include "ddp/progress.h"
#include "ddp/rank_balance.h"
#include "ddp/replica_check.h"
#include "ddp/run_record.h"
#include "ddp/spawn.h"
#include "ddp/step_graph.h"
#include "ddp/step_metrics.h"
#include "ddp/stop.h"
#include "ddp/store.h"
#include "ddp/zero_redundancy_optimizer.h"

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DDP_H_

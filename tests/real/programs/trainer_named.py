"""transformers' Trainer over a group that the script makes by its backend's name, as docs/library/pytorch-backend.md shows it."""

import os
import sys

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

BACKEND = os.environ.get("DDPRUN_REAL_BACKEND", "gloo")
if BACKEND == "ddp":
    import ddprun.torch  # noqa: F401  registers the backend
dist.init_process_group(BACKEND)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        drawn = torch.Generator().manual_seed(index)
        words = torch.randint(0, 64, (32,), generator=drawn)
        return {"input_ids": words, "labels": words}


arguments = TrainingArguments(
    output_dir=sys.argv[1],
    per_device_train_batch_size=4,
    max_steps=12,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
    seed=7,
)
torch.manual_seed(7)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2)
)
trainer = Trainer(model, arguments, train_dataset=Data())
trainer.train()
print("backend", dist.get_backend(), "steps", trainer.state.global_step, flush=True)
dist.destroy_process_group()

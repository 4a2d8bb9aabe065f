"""Train BERT-large as in the measurements of transformers' documentation: for `xdevice fits 24GiB others.py`.

Each update has four texts of 512 tokens. The optimizer updates one weight after another, and gradients stay allocated.
Softmax keeps its input beside its result, as it did before PyTorch 1.11 (pytorch/pytorch, issue 64000).
"""

import argparse
from contextlib import nullcontext

import torch
from torch import nn, optim
from transformers import BertConfig, BertForSequenceClassification
from transformers.optimization import Adafactor

UPDATES, TEXTS, TOKENS = 3, 4, 512


class SoftmaxOf110(torch.autograd.Function):
    """Softmax of PyTorch 1.10, which kept its input until the backward pass, and did not use it."""

    @staticmethod
    def forward(ctx, scores, dim):
        weights = torch.softmax(scores, dim)
        ctx.save_for_backward(scores, weights)
        ctx.dim = dim
        return weights

    @staticmethod
    def backward(ctx, gradient):
        scores, weights = ctx.saved_tensors
        return torch._softmax_backward_data(gradient, weights, ctx.dim, scores.dtype), None


# autocast has softmax in float32, and what was kept is its cast input
nn.functional.softmax = lambda scores, dim: SoftmaxOf110.apply(scores.float(), dim)

parser = argparse.ArgumentParser()
parser.add_argument("--at-once", type=int, default=TEXTS)
parser.add_argument("--checkpointing", action="store_true")
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--adafactor", action="store_true")
options = parser.parse_args()

config = BertConfig(
    hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
)
config._attn_implementation = "eager"
model = BertForSequenceClassification(config).cuda().train()
if options.checkpointing:
    model.gradient_checkpointing_enable()
if options.adafactor:
    optimizer = Adafactor(model.parameters(), lr=5e-5, scale_parameter=False, relative_step=False)
else:
    optimizer = optim.AdamW(model.parameters(), lr=5e-5, foreach=False)
scaler = torch.amp.GradScaler("cuda", enabled=options.fp16)
for _ in range(UPDATES):
    for _ in range(TEXTS // options.at_once):
        ids = torch.randint(100, 30000, (options.at_once, TOKENS)).cuda()
        labels = torch.zeros(options.at_once, dtype=torch.long).cuda()
        with torch.autocast("cuda", dtype=torch.float16) if options.fp16 else nullcontext():
            loss = model(input_ids=ids, labels=labels).loss / (TEXTS // options.at_once)
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
    scaler.step(optimizer)
    scaler.update()
    model.zero_grad(set_to_none=False)

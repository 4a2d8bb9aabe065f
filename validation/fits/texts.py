"""Train a language model of transformers on one GPU, four steps: a program that run.py measures.

The models are made from their configurations, without files. Texts are cut at 128 tokens.
"""

import argparse

import torch
from torch import optim
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

TOKENS = 128
STEPS = 4
OPT = {"vocab_size": 50272, "max_position_embeddings": 2048, "dropout": 0.1}
NO_DROPOUT = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}

MODELS = {
    "cerebras/Cerebras-GPT-111M": lambda: GPT2LMHeadModel(
        GPT2Config(
            n_layer=10,
            n_positions=2048,
            n_inner=3072,
            activation_function="gelu",
            **NO_DROPOUT,
        )
    ),
    "distilbert/distilgpt2": lambda: GPT2LMHeadModel(GPT2Config(n_layer=6)),
    "EleutherAI/gpt-neo-125M": lambda: GPTNeoForCausalLM(
        GPTNeoConfig(
            hidden_size=768,
            num_layers=12,
            num_heads=12,
            attention_types=[[["global", "local"], 6]],
            embed_dropout=0.0,
            attention_dropout=0.0,
            resid_dropout=0.0,
        )
    ),
    "facebook/opt-125m": lambda: OPTForCausalLM(
        OPTConfig(
            hidden_size=768, num_hidden_layers=12, ffn_dim=3072, num_attention_heads=12, **OPT
        )
    ),
    "facebook/opt-350m": lambda: OPTForCausalLM(
        OPTConfig(
            hidden_size=1024,
            num_hidden_layers=24,
            ffn_dim=4096,
            num_attention_heads=16,
            word_embed_proj_dim=512,
            do_layer_norm_before=False,
            **OPT,
        )
    ),
    "openai-community/gpt2": lambda: GPT2LMHeadModel(GPT2Config()),
    "t5-base": lambda: T5ForConditionalGeneration(
        T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0)
    ),
    "T5-small": lambda: T5ForConditionalGeneration(
        T5Config(d_model=512, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0)
    ),
}
"""By the names in the recordings."""

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=MODELS)
parser.add_argument("optimizer")
parser.add_argument("batch", type=int)
options = parser.parse_args()

model = MODELS[options.model]().train()
vocabulary = model.config.vocab_size
optimizer = getattr(optim, options.optimizer)(model.parameters(), lr=0.001)
model.cuda()
for _ in range(STEPS):
    lengths = torch.tensor([2, 6, TOKENS])[torch.randint(3, (options.batch,))]
    lengths[0] = TOKENS
    mask = torch.arange(TOKENS) < lengths[:, None]
    ids = torch.randint(3, vocabulary, (options.batch, TOKENS)).where(mask, vocabulary - 1)
    batch = {"input_ids": ids, "attention_mask": mask.long(), "labels": ids.where(mask, -100)}
    optimizer.zero_grad()
    batch = {name: value.cuda() for name, value in batch.items()}
    outputs = model(**batch)  # kept until the next step has its own, as in the usual loop
    outputs.loss.backward()
    optimizer.step()
    print(outputs.loss.item())

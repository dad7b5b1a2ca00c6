"""The programs that `make demo` compiles: a small function, an MLP, and transformers' models with random weights."""
import torch
from torch import nn


def affine_chain(x):
    y = x + 0.0
    left = y - 2.0          # unused: dead code
    y = (y * 1.0) - 0.0
    y = y + 2.0
    return torch.sigmoid(torch.relu(y)).view(-1)


def mlp():
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.LayerNorm(128), nn.Linear(128, 16))


def tokens(batch, length, vocabulary):
    return torch.randint(0, vocabulary, (batch, length))


def image(batch, size):
    return torch.randn(batch, 3, size, size)


def _hf(model, config, inputs, output, **sizes):
    def make():
        import transformers
        module = getattr(transformers, model)(getattr(transformers, config)(**sizes)).eval()
        return module, (inputs(),), lambda *args: getattr(module(*args), output)
    return make


def _function():
    return None, (torch.randn(4, 32),), affine_chain


def _mlp():
    module = mlp().eval()
    return module, (torch.randn(256, 64),), module


# name -> function giving (module or None, example arguments, callable to compile)
MODELS = {
    "function": _function,
    "mlp": _mlp,
    "bert": _hf("BertModel", "BertConfig", lambda: tokens(2, 128, 30000), "last_hidden_state"),
    "gpt2": _hf("GPT2LMHeadModel", "GPT2Config", lambda: tokens(1, 128, 50257), "logits", use_cache=False),
    "resnet50": _hf("ResNetForImageClassification", "ResNetConfig", lambda: image(2, 224), "logits"),
    "vit_small": _hf("ViTModel", "ViTConfig", lambda: image(2, 224), "last_hidden_state",
                     hidden_size=384, num_attention_heads=6, intermediate_size=1536),
    "llama": _hf("LlamaForCausalLM", "LlamaConfig", lambda: tokens(1, 128, 32000), "logits", use_cache=False,
                 hidden_size=512, intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8,
                 num_key_value_heads=4, vocab_size=32000),
    "t5": _hf("T5EncoderModel", "T5Config", lambda: tokens(2, 64, 32000), "last_hidden_state", num_layers=4),
    "convnext": _hf("ConvNextModel", "ConvNextConfig", lambda: image(1, 224), "last_hidden_state"),
    "swin": _hf("SwinModel", "SwinConfig", lambda: image(1, 224), "last_hidden_state"),
}

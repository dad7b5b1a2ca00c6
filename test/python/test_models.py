"""Real models of small size: one full graph, nothing run eagerly, values as eager's, for every backend."""
import pytest
import torch
from torch import nn

import braze

transformers = pytest.importorskip("transformers")


def tokens(batch, length, vocabulary=500):
    return torch.randint(0, vocabulary, (batch, length))


def image(batch, size):
    return torch.randn(batch, 3, size, size)


def small(model, config, inputs, output, **sizes):
    def make():
        module = getattr(transformers, model)(getattr(transformers, config)(**sizes)).eval()
        return (lambda *args: getattr(module(*args), output)), inputs()
    return make


def mlp():
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.LayerNorm(128), nn.Linear(128, 16)).eval()


MODELS = {
    "mlp": lambda: (mlp(), torch.randn(8, 64)),
    "bert": small("BertModel", "BertConfig", lambda: tokens(2, 17), "last_hidden_state", hidden_size=48,
                  num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=500),
    "gpt2": small("GPT2LMHeadModel", "GPT2Config", lambda: tokens(1, 19), "logits", n_embd=48, n_layer=2, n_head=4,
                  vocab_size=500, use_cache=False),
    "llama": small("LlamaForCausalLM", "LlamaConfig", lambda: tokens(1, 21), "logits", hidden_size=64,
                   intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                   vocab_size=500, use_cache=False),
    "t5": small("T5EncoderModel", "T5Config", lambda: tokens(2, 15), "last_hidden_state", d_model=48, d_kv=12, d_ff=96,
                num_layers=2, num_heads=4, vocab_size=500),
    "vit": small("ViTModel", "ViTConfig", lambda: image(2, 32), "last_hidden_state", hidden_size=48, num_hidden_layers=2,
                 num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8),
    "resnet": small("ResNetForImageClassification", "ResNetConfig", lambda: image(2, 64), "logits", embedding_size=16,
                    hidden_sizes=[16, 32], depths=[1, 2], num_labels=10),
    "convnext": small("ConvNextModel", "ConvNextConfig", lambda: image(1, 64), "last_hidden_state",
                      hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 2, 1]),
    "swin": small("SwinModel", "SwinConfig", lambda: image(1, 56), "last_hidden_state", image_size=56, patch_size=2,
                  embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=7),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "braze"])
@pytest.mark.parametrize("name", MODELS)
def test_model_is_one_graph(name, backend):
    torch.manual_seed(0)
    f, x = MODELS[name]()
    braze.reset()
    with torch.no_grad():
        want = f(x)
        compiled = braze.compile(f, fullgraph=True, backend=backend)
        for _ in range(2):
            got = compiled(x)
            assert got.shape == want.shape and got.dtype == want.dtype and got.stride() == want.stride()
            torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-4)
    counters = braze.counters()
    assert counters["graphs"] == 1
    assert not counters["skipped"] and not counters["breaks"]


@pytest.mark.parametrize("name", ["mlp", "bert", "gpt2"])
def test_one_program_for_every_batch_size(name):
    torch.manual_seed(0)
    f, x = MODELS[name]()
    braze.reset()
    compiled = braze.compile(f, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for batch in (3, 5, 2, 8):
            args = torch.cat([x] * 8)[:batch]
            torch.testing.assert_close(compiled(args), f(args), rtol=2e-4, atol=2e-4)
    assert braze.counters()["graphs"] == 1


def test_parameters_are_looked_up_in_every_call():
    torch.manual_seed(0)
    module = mlp()
    compiled = braze.compile(module)
    x = torch.randn(4, 64)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
        module[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), module(x))
        module[0].weight.data.add_(1)                       # changes no version counter
        torch.testing.assert_close(compiled(x), module(x))
        module[2] = nn.Linear(128, 128)
        torch.testing.assert_close(compiled(x), module(x))
        module.load_state_dict({k: v * 1.5 for k, v in module.state_dict().items()})
        torch.testing.assert_close(compiled(x), module(x))
        module[4].bias = nn.Parameter(torch.randn(16))
        torch.testing.assert_close(compiled(x), module(x))

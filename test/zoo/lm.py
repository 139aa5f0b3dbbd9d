"""Causal language models of transformers."""
import transformers as tr

from case import CE, Case, Pick, next_tokens, tokens

V, T = 61, 12
SMALL = dict(vocab_size=V, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=32, pad_token_id=1, bos_token_id=1, eos_token_id=2, use_cache=False,
             attention_dropout=0.0)


def lm(name, config, model, padded="left", **more):
    def build():
        m = getattr(tr, model)(config())
        return Pick(m, ["input_ids", "attention_mask"] if padded else ["input_ids"], "logits")

    return Case(name, build, tokens(V, T, padded), CE, next_tokens, **more)


def config(kind, **more):
    def make():
        keys = {**SMALL, **more}
        attn = keys.pop("attn", None)
        keys = {k: v for k, v in keys.items() if v != "-"}
        c = getattr(tr, kind)(**keys)
        if attn:
            c._attn_implementation = attn
        return c

    return make


CASES = [
    lm("gpt_neox", config("GPTNeoXConfig", hidden_dropout=0.0), "GPTNeoXForCausalLM"),
    lm("opt", config("OPTConfig", intermediate_size="-", ffn_dim=64, word_embed_proj_dim=32, dropout=0.0), "OPTForCausalLM"),
    lm("bloom", config("BloomConfig", intermediate_size="-", num_hidden_layers="-", num_attention_heads="-", n_layer=2,
                       n_head=4, hidden_dropout=0.0, max_position_embeddings="-", attn="eager"), "BloomForCausalLM"),
    lm("qwen2", config("Qwen2Config", num_key_value_heads=2, tie_word_embeddings=True), "Qwen2ForCausalLM"),
    lm("qwen3_fresh", config("Qwen3Config", num_key_value_heads=2, head_dim=8, tie_word_embeddings=True), "Qwen3ForCausalLM",
       perturb=False),
    lm("mistral", config("MistralConfig", num_key_value_heads=2, sliding_window=4), "MistralForCausalLM"),
    lm("phi", config("PhiConfig", partial_rotary_factor=0.5, resid_pdrop=0.0, embd_pdrop=0.0), "PhiForCausalLM"),
    lm("phi3", config("Phi3Config", num_key_value_heads=2, resid_pdrop=0.0, embd_pdrop=0.0), "Phi3ForCausalLM"),
    lm("gemma", config("GemmaConfig", num_key_value_heads=1, head_dim=8), "GemmaForCausalLM", known={"torchscript": "folds 1 + w"}),
    lm("gemma_unoptimized", config("GemmaConfig", num_key_value_heads=1, head_dim=8), "GemmaForCausalLM", optimize=False),
    lm("gemma2", config("Gemma2Config", num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8, sliding_window=4,
                        attn="eager"), "Gemma2ForCausalLM", "right", optimize=False),
    lm("gemma3", config("Gemma3TextConfig", num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8, sliding_window=4),
       "Gemma3ForCausalLM", optimize=False),
    lm("falcon", config("FalconConfig", multi_query=True, alibi=False, hidden_dropout=0.0, intermediate_size="-"),
       "FalconForCausalLM"),
    lm("gptj", config("GPTJConfig", hidden_size="-", intermediate_size="-", num_hidden_layers="-", num_attention_heads="-",
                      max_position_embeddings="-", attention_dropout="-", n_embd=32, n_layer=2, n_head=4, rotary_dim=4,
                      n_positions=32, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0, attn="eager"), "GPTJForCausalLM"),
    lm("stablelm", config("StableLmConfig", num_key_value_heads=2, hidden_dropout=0.0), "StableLmForCausalLM"),
    lm("olmo2", config("Olmo2Config", num_key_value_heads=2), "Olmo2ForCausalLM"),
    lm("cohere", config("CohereConfig", num_key_value_heads=2, logit_scale=0.5), "CohereForCausalLM",
       known={"torchscript": "a broken file (a Reshape does not fit)"}),
    lm("gpt_bigcode", config("GPTBigCodeConfig", hidden_size="-", intermediate_size="-", num_hidden_layers="-",
                             num_attention_heads="-", max_position_embeddings="-", attention_dropout="-", n_embd=32,
                             n_layer=2, n_head=4, n_positions=32, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0),
       "GPTBigCodeForCausalLM"),
    lm("mixtral", config("MixtralConfig", num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
                         experts_implementation="eager"), "MixtralForCausalLM",
       known={"torchscript": "NonZero of the data"}),
    lm("mamba", config("MambaConfig", num_attention_heads="-", intermediate_size="-", max_position_embeddings="-",
                       attention_dropout="-", state_size=4, time_step_rank=4), "MambaForCausalLM", padded=None, optimize=False),
    lm("mamba2", config("Mamba2Config", num_attention_heads="-", intermediate_size="-", max_position_embeddings="-",
                        attention_dropout="-", num_heads=8, head_dim=8, state_size=4, n_groups=2, chunk_size=4),
       "Mamba2ForCausalLM", padded=None, optimize=False,
       known={"torchscript": "a broken file (a perm of negative numbers)"}),
    lm("recurrent_gemma", config("RecurrentGemmaConfig", num_key_value_heads=1, lru_width=32, attention_window_size=8,
                                 num_hidden_layers=3, max_position_embeddings="-"), "RecurrentGemmaForCausalLM", "right",
       optimize=False),
    lm("rwkv", config("RwkvConfig", num_attention_heads="-", max_position_embeddings="-", attention_dropout="-",
                      attention_hidden_size=32), "RwkvForCausalLM", padded=None, optimize=False),
]

"""What the transformers library makes of tiny random models: make.py [FOLDER] [--check] [--only=NAME...].

Writes a file a model: its config as the library saves it, tokens, logits and the greedy continuation. transformers_test.cpp
compares Weft with them. With --check the files are compared with what the library gives now, and stay as they are.
Made with transformers 5.23.0 and 5.24.0, and torch 2.15.0.
"""
import contextlib
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

VOCABULARY, TOKENS, PROMPT, NEW = 48, 40, 20, 12
SCALED = {"rope_theta": 10000.0, "original_max_position_embeddings": 16}
BASE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None,
            tie_word_embeddings=False)


def longrope(factors):
    return {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.2, 1.3][:factors],
            "long_factor": [1.0, 2.0, 3.0, 4.0][:factors], "original_max_position_embeddings": 32}


LATENT = dict(num_key_value_heads=4, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=12)

DELTA = dict(linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=2, linear_num_value_heads=4)
SECOND = dict(mamba_d_state=8, mamba_d_head=8, mamba_n_groups=2, mamba_chunk_size=8)
MULTIPLIERS = dict(embedding_multiplier=1.5, lm_head_multiplier=0.7, mlp_multipliers=[0.8, 1.2], key_multiplier=0.9,
                   attention_out_multiplier=1.1, attention_in_multiplier=0.9, ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 1.3],
                   ssm_in_multiplier=1.2, ssm_out_multiplier=0.8)

STREAMS = dict(tie_word_embeddings=True, sliding_window=6, hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCABULARY,
               laurel_rank=64)

TWO_KINDS = dict(head_dim=8, global_head_dim=16, sliding_window=6, tie_word_embeddings=True)

# name, class, what differs from BASE; "context" and "tokens" are not the config's.
CASES = [
    ("llama", "Llama", {}),
    ("llama-biases", "Llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 16}),
    ("llama-llama3", "Llama", {"tie_word_embeddings": True, "rope_parameters": {
        **SCALED, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}}),
    ("llama-linear", "Llama", {"rope_parameters": {"rope_theta": 500.0, "rope_type": "linear", "factor": 4.0}}),
    ("llama-yarn", "Llama", {"rope_parameters": {**SCALED, "rope_type": "yarn", "factor": 4.0}}),
    ("llama-yarn-scales", "Llama", {"max_position_embeddings": 256, "rope_parameters": {
        "rope_theta": 50.0, "original_max_position_embeddings": 64, "rope_type": "yarn", "factor": 4.0, "mscale": 0.8, "mscale_all_dim": 0.5, "beta_fast": 20.0, "truncate": False}}),
    ("mistral", "Mistral", {"sliding_window": 6, "head_dim": 16}),
    ("mistral-linear", "Mistral", {"sliding_window": 6, "rope_parameters": {"rope_theta": 500.0, "rope_type": "linear", "factor": 2.0}}),
    ("smollm3", "SmolLM3", {"no_rope_layer_interval": 2, "tie_word_embeddings": True}),
    ("smollm3-window", "SmolLM3", {"use_sliding_window": True, "sliding_window": 7, "num_hidden_layers": 4}),
    ("qwen2", "Qwen2", {"use_sliding_window": False, "sliding_window": 5}),
    ("qwen2-window", "Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1, "tie_word_embeddings": True}),
    ("qwen3", "Qwen3", {"head_dim": 16}),
    ("qwen3-window", "Qwen3", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2, "attention_bias": True}),
    ("gemma", "Gemma", {"head_dim": 16, "tie_word_embeddings": True}),
    ("gemma2", "Gemma2", {"head_dim": 16, "tie_word_embeddings": True, "sliding_window": 5, "query_pre_attn_scalar": 24,
                          "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}),
    ("gemma3", "Gemma3Text", {"head_dim": 16, "tie_word_embeddings": True, "sliding_window": 5, "num_hidden_layers": 7,
                              "query_pre_attn_scalar": 24}),
    ("gemma3-linear", "Gemma3Text", {"head_dim": 16, "tie_word_embeddings": True, "sliding_window": 5,
                                     "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                                     "rope_parameters": {
                                         "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5},
                                         "sliding_attention": {"rope_type": "default", "rope_theta": 2000.0}}}),
    ("gemma3-vision", "Gemma3", {"text_config": {**BASE, "head_dim": 16, "tie_word_embeddings": True, "sliding_window": 5},
                                 "vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                                                   "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
                                 "mm_tokens_per_image": 4, "image_token_index": 49, "boi_token_index": 50, "eoi_token_index": 51}),
    ("gemma3n", "Gemma3nText", {"num_hidden_layers": 6, "head_dim": 16, **STREAMS, "layer_types": ["sliding_attention", "full_attention"] * 3,
                                "num_kv_shared_layers": 3, "activation_sparsity_pattern": [0.9, 0.0, 0.8, 0.0, 0.9, 0.0]}),
    ("gemma3n-two-states", "Gemma3nText", {"num_hidden_layers": 5, "head_dim": 8, **STREAMS, "num_kv_shared_layers": 0, "altup_num_inputs": 2, "vocab_size_per_layer_input": 40,
                                           "altup_correct_scale": False, "activation_sparsity_pattern": None, "laurel_rank": 5}),
    ("gemma4", "Gemma4Text", {"num_hidden_layers": 5, **TWO_KINDS, "layer_types": ["full_attention", "sliding_attention"] * 2 + ["full_attention"],
                              "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY}),
    ("gemma4-keys-are-values", "Gemma4Text", {"num_hidden_layers": 6, **TWO_KINDS, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
                                              "hidden_size_per_layer_input": 0, "final_logit_softcapping": 5.0}),
    ("gemma4-experts", "Gemma4Text", {"num_hidden_layers": 6, **TWO_KINDS, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
                                      "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2,
                                      "moe_intermediate_size": 24, "final_logit_softcapping": 5.0}),
    ("phi3", "Phi3", {"sliding_window": None}),
    ("phi3-window", "Phi3", {"sliding_window": 6, "rope_parameters": {
        "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}),
    ("phi3-longrope-long", "Phi3", {"rope_parameters": longrope(4), "original_max_position_embeddings": 32,
                                    "sliding_window": 9, "prompt": 34}),
    ("phi3-longrope-short", "Phi3", {"rope_parameters": longrope(4), "original_max_position_embeddings": 32,
                                     "context": 32, "tokens": 30, "prompt": 14}),
    # A short text in a long context, and one that outgrows the short factors.
    ("phi3-longrope-grows", "Phi3", {"rope_parameters": longrope(4), "original_max_position_embeddings": 32,
                                     "tokens": 31, "prompt": 26}),
    ("gpt2", "GPT2", {"n_inner": 48}),
    ("mixtral", "Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    ("mamba", "Mamba", {"state_size": 8, "time_step_rank": 4}),
    ("mamba-biases", "Mamba", {"state_size": 4, "time_step_rank": 2, "use_bias": True, "use_conv_bias": False, "conv_kernel": 3,
                               "tie_word_embeddings": True}),
    ("mamba2", "Mamba2", {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8}),
    ("mamba2-limits", "Mamba2", {"state_size": 4, "num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8,
                                 "time_step_limit": (0.5, 1.5), "reads_whole_texts": True, "tie_word_embeddings": True}),
    ("bamba", "Bamba", {"mamba_d_state": 8, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_chunk_size": 8,
                        "num_hidden_layers": 4, "attn_layer_indices": [1, 3], "head_dim": 8}),
    ("granite-hybrid", "GraniteMoeHybrid", {"mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_chunk_size": 8,
                                            "layer_types": ["mamba", "attention", "mamba"], "shared_intermediate_size": 48,
                                            "num_local_experts": 0, "num_experts_per_tok": 0, "embedding_multiplier": 1.5,
                                            "attention_multiplier": 0.2, "residual_multiplier": 0.6, "logits_scaling": 2.0,
                                            "tie_word_embeddings": True}),
    ("granite-hybrid-rope", "GraniteMoeHybrid", {"mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_chunk_size": 8,
                                                 "layer_types": ["attention", "mamba", "mamba"], "shared_intermediate_size": 48,
                                                 "num_local_experts": 0, "num_experts_per_tok": 0, "position_embedding_type": "rope"}),
    ("qwen3-moe", "Qwen3Moe", {"head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                               "norm_topk_prob": True}),
    ("qwen3-moe-all", "Qwen3Moe", {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
                                   "norm_topk_prob": False, "tie_word_embeddings": True}),
    ("qwen2-moe", "Qwen2Moe", {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                               "shared_expert_intermediate_size": 40}),
    ("stablelm", "StableLm", {"use_qkv_bias": True, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}}),
    ("stablelm-parallel", "StableLm", {"use_parallel_residual": True, "head_dim": 8}),
    ("phi", "Phi", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}),
    ("gpt-neox", "GPTNeoX", {"rotary_pct": 0.25}),
    ("gpt-neox-serial", "GPTNeoX", {"rotary_pct": 0.5, "use_parallel_residual": False, "attention_bias": False}),
    ("falcon", "Falcon", {"multi_query": True, "tie_word_embeddings": True, "bias": False}),
    ("falcon-groups", "Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True, "ffn_hidden_size": 48}),
    ("falcon-one-norm", "Falcon", {"new_decoder_architecture": True, "num_kv_heads": 4, "num_ln_in_parallel_attn": 1}),
    # The library rounds slopes to bf16, which these are already. Its eager attention adds them twice.
    ("falcon-alibi", "Falcon", {"attention": "sdpa", "alibi": True, "parallel_attn": False, "multi_query": False, "bias": True, "tie_word_embeddings": True}),
    ("falcon-alibi-parallel", "Falcon", {"attention": "sdpa", "alibi": True, "multi_query": False, "hidden_size": 48, "num_attention_heads": 6}),
    ("olmo", "Olmo", {}),
    ("olmo2", "Olmo2", {}),
    ("olmo3", "Olmo3", {"sliding_window": 6, "num_hidden_layers": 4}),
    ("olmo3-yarn", "Olmo3", {"sliding_window": 6, "num_hidden_layers": 4, "rope_parameters": {
        "full_attention": {**SCALED, "rope_type": "yarn", "factor": 4.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
    ("cohere", "Cohere", {"tie_word_embeddings": True, "logit_scale": 0.25}),
    ("cohere2", "Cohere2", {"tie_word_embeddings": True, "sliding_window": 6, "num_hidden_layers": 4, "logit_scale": 0.5}),
    ("granite", "Granite", {"embedding_multiplier": 1.5, "attention_multiplier": 0.2, "residual_multiplier": 0.6,
                            "logits_scaling": 2.0, "tie_word_embeddings": True}),
    ("glm", "Glm", {"head_dim": 8, "attention_bias": True}),
    ("glm4", "Glm4", {"head_dim": 16, "attention_bias": True}),
    ("exaone4", "Exaone4", {"sliding_window": 6, "sliding_window_pattern": 4, "num_hidden_layers": 4}),
    ("exaone4-whole", "Exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 3, "head_dim": 16, "tie_word_embeddings": True}),
    ("starcoder2", "Starcoder2", {"tie_word_embeddings": True, "sliding_window": 6}),
    ("ernie4_5", "Ernie4_5", {"head_dim": 16, "use_bias": True, "tie_word_embeddings": True}),
    ("nemotron", "Nemotron", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}),
    ("arcee", "Arcee", {}),
    ("seed-oss", "SeedOss", {"head_dim": 16, "attention_bias": True}),
    ("ministral", "Ministral", {"head_dim": 16, "sliding_window": 6,
                                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    ("lfm2", "Lfm2", {"layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 8, "tie_word_embeddings": True}),
    ("lfm2-biases", "Lfm2", {"layer_types": ["full_attention", "conv", "conv"], "block_auto_adjust_ff_dim": False, "conv_bias": True,
                             "conv_L_cache": 4}),
    ("gpt-oss", "GptOss", {"head_dim": 32, "sliding_window": 6, "num_hidden_layers": 4, "num_local_experts": 5, "num_experts_per_tok": 2,
                           "intermediate_size": 64, "rope_parameters": {**SCALED, "rope_type": "yarn", "factor": 4.0, "truncate": False}}),
    ("gpt-oss-clamped", "GptOss", {"head_dim": 16, "sliding_window": 9, "num_local_experts": 4, "num_experts_per_tok": 3,
                                   "intermediate_size": 40, "swiglu_limit": 0.5, "swiglu_alpha": 1.2, "attention_bias": False,
                                   "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
                                   "layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
    ("qwen2-moe-some", "Qwen2Moe", {"num_hidden_layers": 5, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                                    "shared_expert_intermediate_size": 40, "decoder_sparse_step": 2, "mlp_only_layers": [3]}),
    ("qwen3-moe-some", "Qwen3Moe", {"head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                                    "norm_topk_prob": True, "mlp_only_layers": [0]}),
    ("deepseek-v2", "DeepseekV2", {**LATENT, "q_lora_rank": None, "n_routed_experts": 5, "num_experts_per_tok": 2, "n_shared_experts": 2,
                                   "moe_intermediate_size": 24, "first_k_dense_replace": 1}),
    ("deepseek-v2-groups", "DeepseekV2", {**LATENT, "q_lora_rank": 24, "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 1,
                                          "moe_intermediate_size": 24, "first_k_dense_replace": 0, "topk_method": "group_limited_greedy",
                                          "n_group": 3, "topk_group": 2, "routed_scaling_factor": 1.5, "rope_parameters": {
                                              **SCALED, "rope_type": "yarn", "factor": 4.0, "mscale": 0.707, "mscale_all_dim": 0.707}}),
    ("deepseek-v3", "DeepseekV3", {**LATENT, "kv_lora_rank": 28, "q_lora_rank": 24, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1,
                                   "moe_intermediate_size": 24, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
                                   "rope_parameters": {**SCALED, "rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    ("deepseek-v3-halves", "DeepseekV3", {**LATENT, "q_lora_rank": None, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 2,
                                          "moe_intermediate_size": 24, "first_k_dense_replace": 2, "n_group": 1, "topk_group": 1,
                                          "norm_topk_prob": False, "rope_interleave": False, "attention_bias": True, "tie_word_embeddings": True}),
    ("bloom", "Bloom", {"tie_word_embeddings": True}),
    ("bloom-six-heads", "Bloom", {"hidden_size": 48, "num_attention_heads": 6, "tie_word_embeddings": False}),
    # The library takes 8 for alibi_bias_max, whatever the file says.
    ("mpt", "Mpt", {"max_seq_len": 64, "tie_word_embeddings": True}),
    ("mpt-six-heads", "Mpt", {"hidden_size": 48, "num_attention_heads": 6, "max_seq_len": 64, "tie_word_embeddings": True,
                              "attn_config": {"clip_qkv": 0.8, "softmax_scale": 0.2}}),
    ("qwen3-next", "Qwen3Next", {"num_hidden_layers": 4, "head_dim": 16, **DELTA, "num_experts": 5, "num_experts_per_tok": 2,
                                 "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40}),
    ("qwen3-next-some", "Qwen3Next", {"num_hidden_layers": 3, "head_dim": 16, **DELTA, "linear_key_head_dim": 16,
                                      "linear_value_head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
                                      "moe_intermediate_size": 24, "shared_expert_intermediate_size": 24, "norm_topk_prob": False,
                                      "mlp_only_layers": [1], "attention_bias": True, "tie_word_embeddings": True,
                                      "layer_types": ["full_attention", "linear_attention", "full_attention"]}),
    ("qwen3.5", "Qwen3_5Text", {"num_hidden_layers": 4, "head_dim": 32, **DELTA}),
    ("qwen3.5-moe", "Qwen3_5MoeText", {"num_hidden_layers": 4, "head_dim": 16, **DELTA, "num_experts": 5, "num_experts_per_tok": 2,
                                       "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40}),
    ("glm4-moe", "Glm4Moe", {"head_dim": 16, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                             "n_shared_experts": 2, "use_qk_norm": True, "attention_bias": True, "routed_scaling_factor": 1.5}),
    ("glm4-moe-groups", "Glm4Moe", {"head_dim": 8, "n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
                                    "first_k_dense_replace": 2, "n_group": 3, "topk_group": 2, "norm_topk_prob": False}),
    ("ernie4_5-moe", "Ernie4_5_Moe", {"moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 24, "moe_num_shared_experts": 2,
                                      "tie_word_embeddings": True}),
    ("ernie4_5-moe-some", "Ernie4_5_Moe", {"moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": 24, "moe_num_shared_experts": 1,
                                           "num_hidden_layers": 4, "moe_layer_end_index": 2}),
    ("ernie4_5-moe-biases", "Ernie4_5_Moe", {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24, "moe_num_shared_experts": 0,
                                             "use_bias": True, "moe_layer_interval": 2}),
    ("hunyuan-dense", "HunYuanDenseV1", {"head_dim": 16, "attention_bias": True}),
    ("hunyuan-dense-alpha", "HunYuanDenseV1", {"head_dim": 8, "tie_word_embeddings": True, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 500.0, "alpha": 20.0, "factor": 1.0}}),
    ("hunyuan-moe", "HunYuanMoEV1", {"head_dim": 16, "num_experts": 5, "moe_topk": 2}),
    ("granite-moe-hybrid", "GraniteMoeHybrid", {"mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_chunk_size": 8,
                                                "layer_types": ["mamba", "attention", "mamba"], "shared_intermediate_size": 48,
                                                "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 24,
                                                "embedding_multiplier": 1.5, "attention_multiplier": 0.2,
                                                "residual_multiplier": 0.6, "logits_scaling": 2.0}),
    ("falcon-h1", "FalconH1", {**SECOND, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_rms_norm": True, **MULTIPLIERS}),
    ("falcon-h1-without-norm", "FalconH1", {**SECOND, "mamba_d_ssm": 48, "mamba_n_heads": 6, "mamba_rms_norm": False, "mamba_n_groups": 1,
                                            "head_dim": 16, "mamba_proj_bias": True, "attention_bias": True, "mlp_bias": True,
                                            "tie_word_embeddings": True, **MULTIPLIERS}),
    ("nemotron-h", "NemotronH", {"num_hidden_layers": 5, "layers_block_type": ["mamba", "mlp", "attention", "mlp", "mamba"],
                                 "head_dim": 16, "ssm_state_size": 8, "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2,
                                 "chunk_size": 8}),
    ("nemotron-h-moe", "NemotronH", {"num_hidden_layers": 5, "layers_block_type": ["mamba", "moe", "attention", "moe", "mlp"],
                                     "head_dim": 16, "ssm_state_size": 8, "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2,
                                     "chunk_size": 8, "n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "n_group": 3,
                                     "topk_group": 2, "moe_shared_expert_intermediate_size": 40, "routed_scaling_factor": 2.5}),
    ("lfm2-moe", "Lfm2Moe", {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "full_attention"], "num_experts": 5,
                             "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_dense_layers": 1, "tie_word_embeddings": True}),
    ("lfm2-moe-plain-routing", "Lfm2Moe", {"layer_types": ["full_attention", "conv", "conv"], "num_experts": 4, "num_experts_per_tok": 2,
                                           "moe_intermediate_size": 24, "num_dense_layers": 0, "use_expert_bias": False, "norm_topk_prob": False}),
    ("jamba", "Jamba", {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
                        "expert_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 8, "mamba_dt_rank": 4,
                        "use_mamba_kernels": False}),
    ("falcon-mamba", "FalconMamba", {"state_size": 8, "time_step_rank": 4}),
    ("apertus", "Apertus", {"head_dim": 16, "attention_bias": True}),
    ("ministral3", "Ministral3", {"head_dim": 16, "sliding_window": None, "rope_parameters": {
        **SCALED, "rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "llama_4_scaling_beta": 0.3}}),
    ("minimax-m2", "MiniMaxM2", {"head_dim": 16, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 24,
                                 "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}),
    ("llama4", "Llama4Text", {"num_hidden_layers": 4, "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 1,
                              "intermediate_size": 24, "intermediate_size_mlp": 48, "interleave_moe_layer_step": 2,
                              "attention_chunk_size": 8, "floor_scale": 8, "attn_scale": 0.3}),
    ("olmoe", "Olmoe", {"num_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 24}),
    ("olmoe-shares", "Olmoe", {"num_experts": 5, "num_experts_per_tok": 3, "intermediate_size": 24, "norm_topk_prob": True, "tie_word_embeddings": True}),
    ("dots1", "Dots1", {"n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 1,
                        "n_group": 3, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 1.5, "sliding_window": None}),
    ("dots1-window", "Dots1", {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 24, "sliding_window": 6,
                               "max_window_layers": 1, "attention_bias": True, "tie_word_embeddings": True}),
    ("mixtral-window", "Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 3, "sliding_window": 6, "head_dim": 16}),
]


def philox(stream, count):
    """First words of Philox 4x32-10 with a 64-bit key and the counters 0, 1, ..."""
    key = [np.uint64(stream & 0xFFFFFFFF), np.uint64(stream >> 32)]
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [np.arange(count, dtype=np.uint64)] + [np.zeros(count, dtype=np.uint64) for _ in range(3)]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> shift) ^ c[1] ^ key[0], b & mask, (a >> shift) ^ c[3] ^ key[1], a & mask]
        key = [(key[0] + np.uint64(0x9E3779B9)) & mask, (key[1] + np.uint64(0xBB67AE85)) & mask]
    return c[0]


def random_values(name, shape, unit_norms):
    """As transformers_test.cpp makes them."""
    stream = 0xCBF29CE484222325
    for byte in name.encode():
        stream = (stream ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    if name.endswith(".bias"):
        scale, offset = 0.3, 0.0
    elif len(shape) < 2:
        scale, offset = 0.3, 1.0 if unit_norms else 0.0
    else:
        scale, offset = 1.7 / np.sqrt(np.float64(shape[1])), 0.0
    units = (philox(stream, int(np.prod(shape))) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return (offset + scale * (2.0 * units - 1)).astype(np.float32).reshape(shape)


def has_unit_norms(name):
    """Norms of Gemma's earlier models have weights around 0."""
    return not name.startswith("gemma") or name.startswith(("gemma3n", "gemma4"))


class Doubles:
    """torch, whose f32 is f64."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def in_double(model):
    """Models of the delta rule cast to f32 inside, and small states make that much."""
    module, single = sys.modules[type(model).__module__], torch.Tensor.float
    if not type(model).__name__.startswith(("Qwen3Next", "Qwen3_5")):
        yield
        return
    module.torch, torch.Tensor.float = Doubles(), torch.Tensor.double
    try:
        yield
    finally:
        module.torch, torch.Tensor.float = torch, single


def result_of(name, kind, changes):
    changes = dict(changes)
    attention = changes.pop("attention", "eager")
    context, count, prompt = changes.pop("context", 64), changes.pop("tokens", TOKENS), changes.pop("prompt", PROMPT)
    of_attention = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings")
    of_others = ("num_key_value_heads", "intermediate_size", "max_position_embeddings")
    # The library leaves the limits of steps out where it goes on from a state.
    goes_on = not changes.pop("reads_whole_texts", False)
    foreign = {"Bloom": of_others, "Mpt": of_others, "Falcon": ("num_key_value_heads", "intermediate_size"), "GPTNeoX": ("num_key_value_heads",), "GPT2": ("num_key_value_heads", "intermediate_size"), "Gemma3": BASE, "Mamba": of_attention, "FalconMamba": of_attention,
               "Mamba2": of_attention}.get(kind, ())
    settings = {**{key: value for key, value in BASE.items() if key not in foreign}, **changes}
    config = getattr(transformers, kind + "Config")(**settings)
    config._attn_implementation = attention
    auto = transformers.AutoModelForImageTextToText if kind == "Gemma3" else transformers.AutoModelForCausalLM
    model = auto.from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model.save_pretrained(folder)
        tensors = load_file(folder / "model.safetensors")
        tensors = {key: random_values(key, value.shape, has_unit_norms(name)) for key, value in tensors.items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        saved = json.loads((folder / "config.json").read_text())
        plain = {"experts_implementation": "eager"} if "experts" in json.dumps(saved) else {}
        model = type(model).from_pretrained(folder, attn_implementation=attention, dtype=torch.float32, **plain).double().eval()
    tokens = [(i * 29 + 7 * (i % 3)) % VOCABULARY for i in range(count)]
    with torch.no_grad(), in_double(model):
        logits = model(torch.tensor([tokens])).logits[0].numpy()
        text = model.generate(torch.tensor([tokens[:prompt]]), max_new_tokens=NEW, do_sample=False, use_cache=goes_on)
    rows = list(range(3, count - 1, 8)) + [count - 1]
    return {"config": saved, "context": context, "tokens": tokens, "rows": rows,
            "logits": [[float(f"{x:.6f}") for x in logits[row]] for row in rows],
            "prompt": prompt, "greedy": text[0, prompt:].tolist(),
            "tensors": {key: list(value.shape) for key, value in sorted(tensors.items())}}


def text_of(result):
    """JSON with a line a key."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items() if key != "logits"]
    rows = ",\n".join("    " + json.dumps(row) for row in result["logits"])
    return "{\n" + ",\n".join(lines) + ',\n  "logits": [\n' + rows + "\n  ]\n}\n"


def main(*arguments):
    check = "--check" in arguments
    folder = pathlib.Path(next((a for a in arguments if not a.startswith("--")), pathlib.Path(__file__).parent))
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failures = 0
    wanted = [a.removeprefix("--only=") for a in arguments if a.startswith("--only=")]
    for name, kind, changes in CASES:
        if wanted and name not in wanted:
            continue
        result, path = result_of(name, kind, changes), folder / f"{name}.json"
        if not check:
            path.write_text(text_of(result))
            print(f"{name}: {path.stat().st_size} bytes, largest logit {np.abs(result['logits']).max():.3f}")
            continue
        kept = json.loads(path.read_text())
        difference = np.abs(np.subtract(kept["logits"], result["logits"])).max()
        good = difference < 3e-6 and all(kept[key] == result[key] for key in ("tokens", "rows", "greedy", "tensors"))
        failures += not good
        print(f"{name}: {'the same' if good else 'DIFFERS'} (logits by {difference:.1e})")
    print(f"{len(wanted or CASES) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

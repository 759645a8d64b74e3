"""Models of torchvision, timm and transformers with random weights, small where the package lets them be. MODELS: name -> maker, as in
zoo.py, of the packages that are there."""
import torch
from torch import nn

MODELS = {}
LEFT_OUT = []  # packages that are missing


def image(size=64, batch=1):
    return torch.randn(batch, 3, size, size)


class Chosen(nn.Module):
    """The outputs of these names, in order. `source` is the text of forward, so that exporters see named arguments."""

    def __init__(self, module, arguments, outputs):
        super().__init__()
        self.module = module
        text = ", ".join(arguments)
        given = ", ".join(f"{each}={each}" for each in arguments)
        space = {}
        exec(f"def forward(self, {text}):\n  y = self.module({given})\n  return tuple(y[k] for k in {outputs!r} if y.get(k) is not None)", space)
        self.forward = space["forward"].__get__(self)


def torchvision_models():
    from torchvision import models
    names = ["resnet18", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "densenet121", "squeezenet1_1", "shufflenet_v2_x0_5", "regnet_y_400mf",
             "convnext_tiny", "mnasnet0_5"]
    for name in names:
        MODELS[name] = lambda name=name: (getattr(models, name)(weights=None), (image(batch=2),), {"x": {0: "batch"}})
    MODELS["inception_v3"] = lambda: (models.inception_v3(weights=None, init_weights=False), (image(96),), {})
    MODELS["swin"] = lambda: (models.SwinTransformer([4, 4], 32, [2, 2], [2, 4], [4, 4]), (image(),), {})
    parts = models.segmentation
    for name in ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50"):
        MODELS[name] = lambda name=name: (Named(getattr(parts, name)(weights=None, weights_backbone=None), "out"), (image(),), {})
    small = {"weights": None, "weights_backbone": None, "min_size": 96, "max_size": 128}
    for name, more in (("fasterrcnn_mobilenet_v3_large_320_fpn", {"box_score_thresh": 0.001, "box_detections_per_img": 10}), ("retinanet_resnet50_fpn", {"detections_per_img": 10})):
        MODELS[name] = lambda name=name, more=more: (getattr(models.detection, name)(**small, **more), ([torch.rand(3, 96, 96)],), {})


class Named(nn.Module):
    def __init__(self, module, output):
        super().__init__()
        self.module, self.output = module, output

    def forward(self, x):
        return self.module(x)[self.output]


def timm_models():
    import timm
    for name, options in (("ghostnet_050", {}), ("res2net50_14w_8s", {}), ("mobilevit_xxs", {}), ("poolformer_s12", {}), ("mobilenetv4_conv_small", {}), ("convnextv2_atto", {}),
                          ("repvgg_a0", {}), ("hrnet_w18_small", {}), ("tf_efficientnet_lite0", {}), ("deit_tiny_patch16_224", {"depth": 2, "img_size": 64}),
                          ("cait_xxs24_224", {"depth": 2, "img_size": 64}), ("levit_128s", {"img_size": 64})):
        MODELS["timm_" + name] = lambda name=name, options=options: (timm.create_model(name, pretrained=False, **options), (image(),), {})


SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 64}
SHARED = {**SMALL, "num_key_value_heads": 2, "use_cache": False}
PIXELS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32, "patch_size": 8}
PAIR = {"vocab_size": 99, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64, "use_cache": False}
SOUNDS = {"vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 3),
          "conv_stride": (5, 2, 2), "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4}


def transformers_models():
    import transformers

    def put(name, kind, config, inputs, outputs, **options):
        def make():
            torch.manual_seed(3)
            made = getattr(transformers, config)(**options)
            module = getattr(transformers, kind)(made)
            for each in module.parameters():
                if each.ndim > 1:
                    nn.init.normal_(each, std=0.08)
            given = inputs()
            axes = {k: {0: "batch", 1: "time"} for k in ("input_ids", "attention_mask")} if set(given) == {"input_ids", "attention_mask"} else {}
            return Chosen(module, list(given), outputs), tuple(given.values()), axes
        MODELS[name] = make

    ids = lambda batch=2, length=9: torch.randint(3, 90, (batch, length))
    mask = lambda: torch.tensor([[1] * 9, [1] * 6 + [0] * 3])
    texts = lambda: {"input_ids": ids(), "attention_mask": mask()}
    pixels = lambda size=32: lambda: {"pixel_values": image(size)}
    hidden = ["last_hidden_state", "pooler_output"]
    put("bert", "BertModel", "BertConfig", texts, hidden, **SMALL)
    put("roberta", "RobertaForSequenceClassification", "RobertaConfig", texts, ["logits"], **SMALL)
    put("distilbert", "DistilBertModel", "DistilBertConfig", texts, hidden, vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
    put("deberta", "DebertaV2Model", "DebertaV2Config", texts, hidden, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, **SMALL)
    put("modernbert", "ModernBertModel", "ModernBertConfig", texts, hidden, pad_token_id=0, global_attn_every_n_layers=2, local_attention=4, **SMALL)
    for name in ("Llama", "Qwen2", "Mistral"):
        put(name.lower(), f"{name}ForCausalLM", f"{name}Config", texts, ["logits"], **SHARED)
    put("gemma2", "Gemma2ForCausalLM", "Gemma2Config", texts, ["logits"], head_dim=8, **SHARED)
    put("bloom", "BloomForCausalLM", "BloomConfig", texts, ["logits"], vocab_size=99, hidden_size=32, n_layer=2, n_head=4, use_cache=False)
    pair = lambda: {"input_ids": ids(), "attention_mask": mask(), "decoder_input_ids": ids(2, 4)}
    put("t5", "T5ForConditionalGeneration", "T5Config", pair, ["logits"], vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False)
    put("bart", "BartForConditionalGeneration", "BartConfig", pair, ["logits"], max_position_embeddings=64, **PAIR)
    put("whisper_encoder", "WhisperModel", "WhisperConfig", lambda: {"input_features": torch.randn(1, 16, 40), "decoder_input_ids": ids(1, 4)}, ["encoder_last_hidden_state"],
        num_mel_bins=16, max_source_positions=20, max_target_positions=32, pad_token_id=1, bos_token_id=2, eos_token_id=3, decoder_start_token_id=4, **PAIR)
    put("clip", "CLIPModel", "CLIPConfig", lambda: {"input_ids": ids(2, 8), "pixel_values": image(32, 2)}, ["logits_per_image", "text_embeds", "image_embeds"],
        text_config={**SMALL, "eos_token_id": 2}, vision_config=PIXELS, projection_dim=16)
    put("wav2vec2", "Wav2Vec2ForCTC", "Wav2Vec2Config", lambda: {"input_values": torch.randn(1, 1600)}, ["logits"], **SOUNDS)
    put("yolos", "YolosForObjectDetection", "YolosConfig", pixels(), ["logits", "pred_boxes"], **{**PIXELS, "image_size": [32, 32]}, num_detection_tokens=5)
    put("segformer", "SegformerForSemanticSegmentation", "SegformerConfig", pixels(64), ["logits"], hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], decoder_hidden_size=16,
        num_attention_heads=[1, 2, 2, 4])
    put("dinov2", "Dinov2Model", "Dinov2Config", pixels(56), hidden, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=28, patch_size=7)
    put("vits", "VitsModel", "VitsConfig", lambda: {"input_ids": torch.randint(3, 30, (1, 8))}, ["waveform"], vocab_size=38, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, ffn_dim=32, flow_size=16, spectrogram_bins=9, prior_encoder_num_flows=2, posterior_encoder_num_wavenet_layers=2, upsample_initial_channel=32,
        upsample_rates=[4, 2], upsample_kernel_sizes=[8, 4], resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]], duration_predictor_num_flows=2,
        duration_predictor_flow_bins=4, depth_separable_num_layers=2, noise_scale=0.0, noise_scale_duration=0.0)
    put("encodec", "EncodecModel", "EncodecConfig", lambda: {"input_values": torch.randn(1, 1, 640)}, ["audio_values"], num_filters=4, hidden_size=16, codebook_size=16,
        codebook_dim=16, num_lstm_layers=1, upsampling_ratios=[4, 2], target_bandwidths=[24.0])
    put("mamba", "MambaForCausalLM", "MambaConfig", lambda: {"input_ids": ids(1, 6)}, ["logits"], vocab_size=99, hidden_size=16, state_size=4, num_hidden_layers=1, use_cache=False)


for fill in (torchvision_models, timm_models, transformers_models):
    try:
        fill()
    except ImportError as error:
        LEFT_OUT.append(str(error))

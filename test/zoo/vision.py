"""Models of images from transformers and timm."""
import numpy as np
import timm
import transformers as tr
from timm.models import _builder, _efficientnet_builder, convnext, densenet, efficientnet, mlp_mixer, mobilenetv3, regnet, swin_transformer, vision_transformer
from timm.models import cait, ghostnet, resnet, vgg, xcit

from case import CE, MSE, OUT, Case, Pick, classes, floats, image, normal

PIX = ["pixel_values"]
VIT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8)
TEXT = dict(vocab_size=61, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=16, attention_dropout=0.0)


def two_towers(rng, n):
    ids = rng.integers(3, 59, (n, 8))
    ids[:, -1] = 60  # the end, where CLIP pools
    return {"input_ids": ids, "pixel_values": rng.standard_normal((n, 3, 32, 32)).astype(np.float32)}


def contrastive(config, text, vision, model, **more):
    from torch import nn

    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            c = getattr(tr, config)(text_config=text, vision_config=vision, **more)
            c._attn_implementation = "sdpa"
            self.model = getattr(tr, model)(c)

        def forward(self, ids, pixels):
            return self.model(input_ids=ids, pixel_values=pixels, return_loss=True).loss

    return WithLoss


def hf(name, kind, model, pick="logits", loss=CE, labels=classes(5), size=32, inputs=None, keys=PIX, attn=None, **more):
    flags = {k: more.pop(k) for k in ("train", "batch_norm", "optimize", "coupled", "fixed", "perturb", "lr", "trainable") if k in more}

    def build():
        c = getattr(tr, kind)(**more)
        if attn:
            c._attn_implementation = attn
        return Pick(getattr(tr, model)(c), keys, pick)

    return Case(name, build, inputs or image(size), loss, labels, **flags)


def timm_case(name, build, size=32, **more):
    return Case(name, build, image(size, name="x"), CE, classes(5), **more)


BN = dict(train=True, batch_norm="training", optimize=False, coupled=True)
FROZEN = dict(train=False, batch_norm="frozen", optimize=False)
BLOCKS = _efficientnet_builder.decode_arch_def
EFF = [["ds_r1_k3_s1_e1_c8_se0.25"], ["ir_r2_k3_s2_e4_c16_se0.25"], ["ir_r1_k5_s2_e4_c24_se0.25"]]
MOB = [["ds_r1_k3_s1_e1_c8_nre"], ["ir_r1_k3_s2_e4_c16_nre"], ["ir_r2_k5_s2_e3_c24_se0.25"], ["cn_r1_k1_s1_c48"]]


def detr():
    c = tr.DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False,
                      backbone_config=tr.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic",
                                                      out_features=["stage2"]),
                      d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                      encoder_ffn_dim=64, decoder_ffn_dim=64, num_queries=6, num_labels=4, dropout=0.0)
    model = tr.DetrForObjectDetection(c)
    model.requires_grad_(True)  # it freezes its backbone, which no exporter tells
    return Pick(model, PIX, "logits")


CASES = [
    Case("clip", contrastive("CLIPConfig", {**TEXT, "eos_token_id": 60}, {**VIT, "attention_dropout": 0.0}, "CLIPModel", projection_dim=16),
         two_towers, OUT, coupled=True, known={"dynamo": "folds exp(logit_scale)"}),
    Case("clip_unoptimized", contrastive("CLIPConfig", {**TEXT, "eos_token_id": 60}, {**VIT, "attention_dropout": 0.0}, "CLIPModel", projection_dim=16),
         two_towers, OUT, coupled=True, optimize=False),
    Case("siglip_unoptimized", contrastive("SiglipConfig", TEXT, {**VIT, "attention_dropout": 0.0}, "SiglipModel"), two_towers, OUT, coupled=True,
         optimize=False),
    Case("siglip", contrastive("SiglipConfig", TEXT, {**VIT, "attention_dropout": 0.0}, "SiglipModel"), two_towers, OUT, coupled=True,
         known={e: "folds exp(logit_scale)" for e in ("dynamo", "torchscript")}),
    Case("detr", detr, image(32), CE, classes(5, 6), optimize=False,
         torchscript={"trainable": ["*.convolution.weight", "model.model.encoder.*", "model.model.decoder.*", "model.model.input_projection.*",
                                    "model.model.query_position_embeddings.*", "model.class_labels_classifier.*"]}),
    hf("segformer", "SegformerConfig", "SegformerForSemanticSegmentation", labels=classes(5, 8, 8), loss={**CE, "axis": 1}, num_encoder_blocks=2,
       depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2],
       mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
       classifier_dropout_prob=0.0, drop_path_rate=0.0, **FROZEN),
    hf("vit_hf", "ViTConfig", "ViTForImageClassification", num_labels=5, hidden_dropout_prob=0.0, **VIT),
    hf("dinov2", "Dinov2Config", "Dinov2ForImageClassification", num_labels=5, **{**VIT, "intermediate_size": 64}),
    hf("swinv2", "Swinv2Config", "Swinv2ForImageClassification", num_labels=5, image_size=32, patch_size=4, embed_dim=16, depths=[2, 2],
       num_heads=[2, 4], window_size=4, drop_path_rate=0.0, optimize=False),
    hf("convnextv2", "ConvNextV2Config", "ConvNextV2ForImageClassification", num_labels=5, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2,
       drop_path_rate=0.0),
    hf("mobilevit", "MobileViTConfig", "MobileViTForImageClassification", num_labels=5, image_size=32, patch_size=1, hidden_sizes=[16, 16, 16],
       neck_hidden_sizes=[8, 8, 8, 16, 16, 16, 32], num_attention_heads=2, hidden_dropout_prob=0.0, classifier_dropout_prob=0.0, **BN),
    hf("poolformer", "PoolFormerConfig", "PoolFormerForImageClassification", num_labels=5, hidden_sizes=[8, 16], depths=[1, 1],
       patch_sizes=[7, 3], strides=[4, 2], padding=[2, 1], num_encoder_blocks=2, drop_path_rate=0.0),
    hf("yolos", "YolosConfig", "YolosForObjectDetection", pick="pred_boxes", loss={"kind": "l1"}, labels=lambda r, n, x: r.random((n, 6, 4)).astype(np.float32),
       num_detection_tokens=6, hidden_dropout_prob=0.0, **{**VIT, "image_size": [32, 32]}),
    hf("ast", "ASTConfig", "ASTForAudioClassification", keys=["input_values"], inputs=floats(16, 8, name="input_values"), num_labels=5,
       hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, patch_size=4, frequency_stride=4, time_stride=4,
       max_length=16, num_mel_bins=8, hidden_dropout_prob=0.0),
    hf("vitmatte_dpt", "DPTConfig", "DPTForDepthEstimation", pick="predicted_depth", loss=MSE, labels=normal(32, 32), neck_hidden_sizes=[8, 8, 8, 8],
       fusion_hidden_size=8, backbone_out_indices=[0, 1, 2, 3], reassemble_factors=[1, 1, 1, 0.5], is_hybrid=False, hidden_dropout_prob=0.0,
       head_in_index=-1, **{**VIT, "num_hidden_layers": 4, "patch_size": 16}),
    timm_case("timm_vit", lambda: vision_transformer.VisionTransformer(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, num_classes=5)),
    timm_case("timm_vit_fresh", lambda: vision_transformer.VisionTransformer(img_size=32, patch_size=8, embed_dim=32, depth=3, num_heads=4,
                                                                             num_classes=5, init_values=0.1), perturb=False,
              known={"dynamo": "the optimizer leaves a zero bias out"}),
    timm_case("timm_vit_fresh_unoptimized", lambda: vision_transformer.VisionTransformer(img_size=32, patch_size=8, embed_dim=32, depth=3, num_heads=4,
                                                                                         num_classes=5, init_values=0.1), perturb=False, optimize=False),
    timm_case("timm_swin", lambda: swin_transformer.SwinTransformer(img_size=32, patch_size=4, embed_dim=16, depths=(2, 2), num_heads=(2, 4),
                                                                    window_size=4, num_classes=5, drop_path_rate=0.0), optimize=False),
    timm_case("timm_convnext", lambda: convnext.ConvNeXt(depths=(1, 1, 1, 1), dims=(8, 8, 16, 16), num_classes=5)),
    timm_case("timm_mixer", lambda: mlp_mixer.MlpMixer(img_size=32, patch_size=8, embed_dim=32, num_blocks=2, num_classes=5)),
    timm_case("timm_efficientnet", lambda: efficientnet.EfficientNet(BLOCKS(EFF), num_classes=5, num_features=32, stem_size=8), **BN),
    timm_case("timm_efficientnet_frozen", lambda: efficientnet.EfficientNet(BLOCKS(EFF), num_classes=5, num_features=32, stem_size=8), **FROZEN),
    timm_case("timm_mobilenetv3", lambda: mobilenetv3.MobileNetV3(BLOCKS(MOB), num_classes=5, num_features=32, stem_size=8), **BN),
    timm_case("timm_regnet", lambda: regnet.RegNet(regnet.RegNetCfg(depth=6, w0=8, wa=10.0, wm=1.8, group_size=8, se_ratio=0.25), num_classes=5), **BN),
    timm_case("timm_densenet", lambda: densenet.DenseNet(growth_rate=4, block_config=(2, 2), bn_size=2, num_classes=5), **BN),
    timm_case("timm_resnet_frozen", lambda: resnet.ResNet(resnet.BasicBlock, (1, 1, 1, 1), num_classes=5, channels=(8, 8, 16, 16), stem_width=8), **FROZEN),
    timm_case("timm_cait", lambda: cait.Cait(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, num_classes=5, depth_token_only=1)),
    timm_case("timm_xcit", lambda: xcit.Xcit(img_size=32, patch_size=16, embed_dim=32, depth=2, num_heads=4, num_classes=5, cls_attn_layers=1, eta=1.0), **BN),
    timm_case("timm_ghostnet", lambda: ghostnet.GhostNet([[[3, 8, 8, 0, 1]], [[3, 24, 16, 0, 2]], [[5, 32, 24, 0.25, 2]]], num_classes=5, width=1.0, drop_rate=0.0), size=32, **BN),
]

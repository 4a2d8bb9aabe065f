"""Train an image classifier of torchvision on one GPU, four steps: a program that run.py measures."""

import argparse

import torch
from torch import nn, optim
from torchvision import models
from torchvision.models.mobilenetv3 import MobileNetV3, _mobilenet_v3_conf

SIZE = 86
STEPS = 4


def mobilenet_v3(name: str) -> nn.Module:
    settings, last = _mobilenet_v3_conf(name)
    return MobileNetV3(settings, last_channel=last, num_classes=10)


MODELS = {
    "ConvNeXtBase": models.convnext_base,
    "ConvNeXtTiny": models.convnext_tiny,
    "MnasNet": lambda: models.MNASNet(1.0, num_classes=10),
    "MobeNetV3Large": lambda: mobilenet_v3("mobilenet_v3_large"),
    "MobeNetV3Small": lambda: mobilenet_v3("mobilenet_v3_small"),
    "MobileNetV2": models.mobilenet_v2,
    "RegNetX400MF": models.regnet_x_400mf,
    "RegNetY400MF": models.regnet_y_400mf,
    "ResNet101": models.resnet101,
    "ResNet152": models.resnet152,
    "VGG16": models.vgg16,
    "VGG19": models.vgg19,
}
"""By the names in the recordings."""

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=MODELS)
parser.add_argument("optimizer")
parser.add_argument("batch", type=int)
options = parser.parse_args()

model = MODELS[options.model]().cuda().train()
optimizer = getattr(optim, options.optimizer)(model.parameters(), lr=0.001)
images = torch.rand(1, 3, SIZE, SIZE).expand(options.batch, -1, -1, -1)
labels = torch.randint(10, (options.batch,))
for _ in range(STEPS):
    inputs, targets = (
        images.contiguous(),
        labels,
    )  # as a loader does: the last batch's are freed first
    optimizer.zero_grad()
    inputs, targets = inputs.cuda(), targets.cuda()
    outputs = model(inputs)
    loss = nn.functional.cross_entropy(outputs, targets)
    loss.backward()
    optimizer.step()
    print(loss.item(), outputs.argmax(1).float().mean().item())
